"""The report of a sweep over the traffic paper's experiment: acceptance, comparison of policies, figures."""
