"""Which seed of the swarm catches which canary: written by `python -m holdfast_lab.canaries --find`.

Rules of this file: made, not edited. Whatever changes what a seed draws or what a node does makes it anew.
"""

from typing import Final

WITHIN_MAX: Final = 300

CAUGHT_BY: Final[dict[str, tuple[int, int]]] = {
    "part-unheard": (70, 150),
    "hop-number-ahead": (27, 100),
    "seen-range-one-off": (21, 50),
    "receipt-of-an-empty-queue": (19, 50),
    "starved-link-asleep": (4, 50),
    "oversized-forgotten": (77, 100),
    "full-credit-again": (7, 50),
    "priority-lost": (11, 50),
    "read-fence-skipped": (10, 50),
    "settled-before-stored": (24, 50),
    "shown-before-stored": (10, 50),
    "producer-forgotten": (17, 50),
    "bound-counts-leaving-twice": (8, 50),
    "redelivery-not-marked": (27, 100),
    "given-back-unmarked": (23, 50),
    "given-back-to-the-tail": (51, 100),
    "advanced-beyond": (10, 50),
    "resumed-in-part": (69, 150),
    "selector-forgotten": (29, 100),
    "freed-and-forgotten": (147, 300),
    "topic-lets-go-early": (32, 100),
    "topic-matches-alike": (32, 100),
    "offered-on-its-way-out": (19, 50),
    "order-taken-for-granted": (81, 100),
    "renewal-not-taken-back": (119, 150),
    "purged-without-its-end": (5, 50),
    "version-not-raised": (5, 50),
    "verdict-kept": (5, 50),
    "queue-not-turned": (7, 50),
    "return-not-noticed": (63, 100),
    "elder-believed": (191, 300),
    "never-reused": (16, 50),
    "kept-yet-refused": (17, 50),
    "gaps-closed-in-vain": (2, 50),
    "tags-lost-at-the-wrap": (2, 50),
    "moved-bytes-lost": (91, 150),
    "aside-stranded": (13, 50),
    "stream-not-forgotten": (10, 50),
    "number-not-wrapped": (5, 50),
    "refused-sender-forgets": (2, 50),
    "settled-overtakes": (51, 150),
    "address-of-the-last": (8, 50),
    "empty-and-there": (39, 100),
    "one-reason-for-both": (7, 50),
    "clock-an-hour-ahead": (24, 50),
    "moved-for-good": (17, 50),
    "rights-remembered": (38, 50),
    "link-untied-beyond-few": (75, 150),
    "link-id-of-one-life": (5, 50),
    "deliveries-of-one-life": (95, 200),
    "due-and-forgotten": (63, 150),
}
"""By name: a seed that fails with it and ends well without; the seed by which a swarm from 1 has found it."""
