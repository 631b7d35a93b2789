"""Older configurations -> documents of kubescheduler.config.k8s.io/v1, before anything is decoded strictly.

    conversion   which form a document has, and the steps from it to v1
    table        the one mapping table: every name that changed, its new name, since when
    warnings     the warning about each change
    shapes       the field sets of the older forms, for strict checking
    component    KubeSchedulerConfiguration v1alpha1 to v1beta3, and flat lists without a version
    plugin_sets  the plugin lists of one profile
    plugin_args  the arguments of one profile
    policy       kind Policy: predicates, priorities, extenders
    extenders    the extender fields that changed
    nodes        building source nodes

Values keep the line they came from, so that later errors are reported at the user's own line. Commands import
this package when a file is not v1, and only then.
"""
