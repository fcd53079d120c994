"""The sync counter, on an strace log as strace writes it."""

from _syncs import KINDS, count_syncs

LOG = """\
11 100.000001 openat(AT_FDCWD</tmp>, "data.mdb"..., O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 7</tmp/data.mdb>
11 100.000002 openat(AT_FDCWD</tmp>, "data.mdb"..., O_WRONLY|O_DSYNC|O_CLOEXEC) = 8</tmp/data.mdb>
11 100.000003 openat(AT_FDCWD</tmp>, "none"..., O_WRONLY|O_DSYNC) = -1 ENOENT (No such file or directory)
11 100.500000 pwrite64(8</tmp/data.mdb>, ""..., 4096, 0) = 4096
12 101.000000 pwrite64(7</tmp/data.mdb>, ""..., 4096, 8192) = 4096
12 101.100000 fdatasync(7</tmp/data.mdb> <unfinished ...>
11 101.200000 writev(9<socket:[41]>, [{iov_base=""..., iov_len=40}], 1) = 40
12 101.300000 <... fdatasync resumed>) = 0
12 101.400000 pwrite64(8</tmp/data.mdb>, ""..., 120, 0) = 120
12 101.500000 msync(0x7f0000000000, 4096, MS_SYNC) = 0
12 101.500001 msync(0x7f0000000000, 4096, MS_ASYNC) = 0
11 101.600000 openat(AT_FDCWD</tmp>, "log"..., O_WRONLY|O_SYNC <unfinished ...>
12 101.700000 fsync(5</tmp>) = 0
11 101.800000 <... openat resumed>, 0600) = 10</tmp/log>
13 101.900000 write(10</tmp/log>, ""..., 5) = 5
13 101.900001 pwritev2(11</tmp/other>, [{iov_base=""..., iov_len=4}], 1, 0, RWF_DSYNC) = 4
11 101.950000 openat(AT_FDCWD</tmp>, "data.mdb"..., O_RDONLY) = 8</tmp/data.mdb>
11 101.960000 pwrite64(8</tmp/data.mdb>, ""..., 120, 0) = 120
11 103.000000 fdatasync(7</tmp/data.mdb>) = 0
""".splitlines()


def test_counts_each_kind_within_the_time() -> None:
    assert count_syncs(LOG, 101.0, 102.0) == {"fsync": 1, "fdatasync": 1, "msync": 1, "dsync_write": 3}


def test_a_descriptor_opened_before_the_time_is_known_in_it() -> None:
    assert count_syncs(LOG, 101.35, 101.45)["dsync_write"] == 1


def test_nothing_in_the_time_is_nothing_counted() -> None:
    assert count_syncs(LOG, 104.0, 105.0) == dict.fromkeys(KINDS, 0)
