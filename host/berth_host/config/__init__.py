"""Configuration: KubeSchedulerConfiguration v1 and berth's own BerthConfiguration.

`load_configuration` turns the text of a file into typed values that `app` builds a host from; all errors come
as one ConfigurationError with file, line and field path.

    loading           the steps, in order
    source/           text -> values that remember their lines (YAML as yaml.v2 reads it, JSON)
    decoding/         values -> types of an API version, strictly; and back to JSON
    defaulting        absent fields filled in, default plugins merged into every profile
    checks/           validation, with kube-scheduler's error types and field paths
    profiles/         multiPoint expanded, profiles built
    berth/            BerthConfiguration: endpoints, scopes, deadlines, failure policies
    default_plugins   the one table of default plugins
    configuration     the result;  rendering: its JSON;  errors: all that can go wrong

Documents of older forms are converted by `older_config`, which callers hand to `loading`.

Source: kube-scheduler v1.36 `pkg/scheduler/apis/config`.
"""
