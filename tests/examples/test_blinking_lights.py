"""BlinkingLightScorer of KEP-624: a node with more lights gets a higher score, spread over 0..100."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import PluginArgsError
from berth_sdk.testing import PluginHost, make_node, make_pod
from support.examples import example

BlinkingLightScorer: Any = example("blinking_lights/blinking_lights.py").BlinkingLightScorer
LABEL = "example.com/blinking-lights"


def scores(lights: dict[str, str], **args: str) -> dict[str, int]:
    nodes = [make_node(name, labels={args.get("label", LABEL): value}) for name, value in lights.items()]
    host = PluginHost(BlinkingLightScorer, args, nodes=nodes)
    return dict(host.attempt(make_pod("web")).score())


def test_node_with_most_lights_scores_100_and_the_others_in_proportion() -> None:
    assert scores({"dark": "0", "dim": "1", "bright": "3"}) == {"dark": 0, "dim": 33, "bright": 100}


def test_all_nodes_score_0_without_lights() -> None:
    assert scores({"a": "0", "b": "many", "c": "-4"}) == {"a": 0, "b": 0, "c": 0}


def test_label_is_read_from_the_arguments() -> None:
    assert scores({"a": "2", "b": "4"}, label="lamps") == {"a": 50, "b": 100}


@pytest.mark.parametrize("label", ["", 7])
def test_invalid_label_argument_is_refused(label: object) -> None:
    with pytest.raises(PluginArgsError, match="label"):
        PluginHost(BlinkingLightScorer, {"label": label})
