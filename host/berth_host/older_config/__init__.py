"""Older configurations -> documents of kubescheduler.config.k8s.io/v1, before the strict decoding.

    conversion   the form of a document, and the steps from that form to v1
    table        the one mapping table: every name that changed, its new name, and the release
    warnings     the warning about each change
    shapes       the field sets of the older forms, for strict checking
    component    KubeSchedulerConfiguration v1alpha1 to v1beta3, and flat lists without a version
    plugin_sets  the plugin lists of one profile
    plugin_args  the arguments of one profile
    policy       kind Policy: predicates, priorities, extenders
    extenders    the extender fields that changed
    nodes        building source nodes
    other_plugins  the one table of other projects' plugins, and of what berth has instead

Values keep the line of the user's file, so that later errors name that line. Commands import this package
only if a file is not v1.
"""
