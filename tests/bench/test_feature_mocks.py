"""Features that exist for a benchmark only: which objects have them, and their removal."""

from __future__ import annotations

import pytest
from berth_bench import feature_mocks
from berth_plugins.node_declared_features import NodeDeclaredFeatures

SIZED = {"resources": {"requests": {"cpu": "1"}}, "containers": []}
OF_A_USER = {"hostNetwork": True, "hostUsers": False}


def test_names_are_in_the_order_of_a_kubelet() -> None:
    assert feature_mocks.names(10)[:3] == ("Feature1", "Feature10", "Feature2")
    assert feature_mocks.names(0) == ()


def test_pods_with_resources_of_their_own_need_the_mocked_features() -> None:
    before = NodeDeclaredFeatures.features
    with feature_mocks.known(feature_mocks.names(2)):
        assert NodeDeclaredFeatures.required_features(SIZED) == ("Feature1", "Feature2")
        assert NodeDeclaredFeatures.required_features({"containers": []}) == ()
        assert NodeDeclaredFeatures.required_features(OF_A_USER) == ()
    assert NodeDeclaredFeatures.features is before
    assert NodeDeclaredFeatures.required_features(OF_A_USER)


def test_mocked_features_are_removed_after_a_failure() -> None:
    before = NodeDeclaredFeatures.features
    with pytest.raises(RuntimeError), feature_mocks.known(("A",)):
        raise RuntimeError
    assert NodeDeclaredFeatures.features is before


def test_plugin_is_unchanged_without_mocked_features() -> None:
    before = NodeDeclaredFeatures.features
    with feature_mocks.known(()):
        assert NodeDeclaredFeatures.features is before
