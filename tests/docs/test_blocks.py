"""Every fenced block of README and docs does what the page says."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import LANGUAGES, REPOSITORY, Page, all_pages
from docs.workspace import Workspace

PAGES = all_pages()
RUN_ELSEWHERE = {
    "README.md": [
        "make demo\n",
        "make test\n",
        ".venv/bin/pytest -m 'not slow' tests/host/queue/test_gates.py\n",
    ],
    # tests/house/test_makefile.py runs the first; the second is a test of its own.
    "CONTRIBUTING.md": [
        "make setup\n",
        ".venv/bin/pytest -m 'not slow' tests/host/queue/test_gates.py\n",
        # tests/deploy/test_image.py
        "apt-get install -y --no-install-recommends buildah mmdebstrap\nmake image\n",
    ],
    # As tests/sdk/cli/test_reloading.py does, and tests/examples/test_made_plugins.py.
    "docs/how-to/begin-a-plugin.md": [
        "berth-sdk serve --reload rack_aware:RackAware --listen unix:/tmp/berth/rack-aware.sock\n",
        "berth-sdk new rack-aware --language go --points filter,score --folder /tmp/berth/rack-aware-go\n"
        "cd /tmp/berth/rack-aware-go\n./build.sh\ngo test ./...\n"
        "berth simulate -f cluster.yaml --config scheduler.yaml\n",
        "BERTH_PLUGIN_ENDPOINT=unix:///tmp/berth/rack-aware.sock bin/rack-aware\n"
        "berth-sdk conformance unix:/tmp/berth/rack-aware.sock\n",
    ],
    # tests/examples/test_languages.py builds and tests them.
    "examples/rust/README.md": ["examples/rust/build.sh\nexamples/rust/build.sh test\n"],
    "examples/java/README.md": ["examples/java/build.sh\nexamples/java/build.sh test\n"],
    # tests/cluster/test_walk.py runs these as blocks of docs/how-to/deploy.md.
    "deploy/helm/berth/README.md": [
        "helm install berth deploy/helm/berth -n berth-system --create-namespace "
        "--set image.repository=registry.example.com/berth\nhelm test berth -n berth-system\n"
    ],
    # These need the index, and a container engine.
    "docs/how-to/publish-a-plugin.md": [
        "python3 -m venv .venv && . .venv/bin/activate\npip install 'berth-sdk[server]'\n",
        "pip install build twine\npython -m build\ntwine check --strict dist/*\ntwine upload dist/*\n",
        "docker build -t registry.example.com/rack-aware:0.1.0 .\n"
        "docker push registry.example.com/rack-aware:0.1.0\n",
    ],
    # tests/deploy/dist.py installs what the index will have.
    "bench/README.md": ["pip install berth-bench\n"],
    "plugins/README.md": ["pip install berth-host 'berth-plugins[dra]'\n"],
    "docs/reference/scheduler-plugins.md": [
        "pip install berth-scheduler-plugins\n"
        "berth-sdk serve NodeResourcesAllocatable --listen unix:/run/berth/plugins/node-resources.sock\n",
    ],
    "plugins/scheduler_plugins/README.md": [
        "pip install berth-host 'berth-plugins[dra]' berth-scheduler-plugins\n"
    ],
    "sdk/README.md": ["pip install 'berth-sdk[server]'\n"],
    # These need a container engine, and nodes of a cluster.
    "docs/how-to/deploy.md": [
        "docker build -t registry.example.com/berth:0.1.0 .\ndocker push registry.example.com/berth:0.1.0\n",
        "kubectl -n berth-system rollout status deployment/berth\n",
        "mkdir -p /etc/kubernetes/berth\n"
        "cp deploy/static-pod/scheduler.yaml /etc/kubernetes/berth/\n"
        "cp /etc/kubernetes/manifests/kube-scheduler.yaml /root/kube-scheduler.before.yaml\n"
        "cp deploy/static-pod/kube-scheduler.yaml /etc/kubernetes/manifests/\n"
        "kubectl -n kube-system get lease kube-scheduler\n",
    ],
    # tests/host/cli/test_completion.py runs these in bash.
    "docs/how-to/complete-in-a-shell.md": [
        'eval "$(berth completion bash)"\neval "$(berth-sdk completion bash)"\n'
    ],
    # tests/host/tracing and tests/sdk/serve/test_tracing.py trace a host and a process of berth-sdk serve.
    "docs/how-to/trace.md": [
        "pip install 'berth-host[tracing]'\n",
        "pip install 'berth-sdk[tracing]'\n"
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://otel-collector.monitoring:4317 OTEL_SERVICE_NAME=gpu-share \\\n"
        "  berth-sdk serve gpu_share:GpuShare --listen unix:/run/berth/plugins/gpu-share.sock\n",
    ],
    # tests/host/cli/test_versions_compared.py
    "docs/explanation/supported-versions.md": [
        "berth check-config scheduler.yaml --emulated-version 1.38 --against 1.37\n",
    ],
    # These need a cluster: tests/cluster/test_compare.py; tests/sim/commands/test_compare.py has manifests.
    "docs/how-to/compare-configurations.md": [
        "berth compare --cluster --config now.yaml --config next.yaml\n",
        "kubectl get nodes,pods,persistentvolumes,persistentvolumeclaims,storageclasses,csinodes"
        ",priorityclasses -A -o yaml > cluster.yaml\n"
        "berth compare --config now.yaml --config next.yaml -f cluster.yaml\n",
    ],
    # tests/examples/test_fits.py reads what kubectl prints.
    "docs/how-to/see-the-scheduler.md": [
        "kubectl berth ui\n",  # tests/host/cli/kubectl/test_passing.py
        "berth bench ui\n",  # tests/bench/ui/test_frames.py
    ],
    "docs/how-to/shadow.md": [
        "berth scheduler --config scheduler.yaml --shadow\n",  # tests/cluster/test_shadow.py
    ],
    "docs/how-to/would-it-fit.md": [
        "kubectl get nodes,pods,podgroups.scheduling.k8s.io -A -o yaml > cluster.yaml\n"
        "python examples/fits/fits.py cluster.yaml new-node.yaml\n"
    ],
    # These need data that is not in the repository.
    "docs/how-to/measure.md": [
        "make scheduler-perf-data\n"
        "berth bench scheduler-perf --labels integration-test\n"
        "berth bench scheduler-perf misc --workload SchedulingBasic/5000Nodes_10000Pods\n"
        "berth bench scheduler-perf misc affinity --labels performance,-short --limit 60\n"
        "berth bench scheduler-perf misc/performance-config.yaml\n",
        "berth bench openb --data openb --config examples/openb/most-allocated.yaml --config scheduler.yaml\n"
        "berth bench openb --data openb --config scheduler.yaml --dump-placements placements.csv\n"
        "python examples/openb/openb_manifests.py --data openb --out manifests\n"
        "python examples/openb/check_placements.py --manifests manifests --placements placements.csv\n",
        # tests/bench/soak/test_command.py
        "berth bench soak --minutes 30 --seed 1 -o json\n",
        # tests/cluster/test_soak.py
        "berth bench soak --kubeconfig ~/.kube/config --minutes 30\n"
        "berth bench soak --kubeconfig ~/.kube/config"
        ' --api-server-pid "$(pgrep -o kube-apiserver)" --minutes 30\n',
        # tests/bench/life/test_command.py
        "berth bench life --seed 1 --lives 200\nberth bench life --seed 1 --until-failure --shrink\n",
        # tests/bench/life/test_watched.py
        "berth bench life --seed 2 --watch\n",
        # tests/bench/faults/test_command.py
        "berth bench faults -o json\nberth bench faults --nodes 1000 --pods 1000 --turns 3 --warm-up 20\n",
        # tests/bench/attach/test_command.py
        "berth bench attach -o json\nberth bench attach --processes 10 --plugins 10 --turns 5 --starts 15\n",
        # tests/bench/simulate/test_command.py
        "berth bench simulate\nberth bench simulate --pods 100 --templates 10 --calls 200 -o json\n",
        # tests/cluster/test_hostile.py
        "make envtest\n"
        "berth bench hostile\n"
        'berth bench hostile pod "node/taints" --nodes 300 --bytes 1500000 -o json\n',
        # tests/cluster/test_versus.py
        "make envtest\n"
        "berth bench versus\n"
        "berth bench versus Plain/1000Nodes RemotePlugin/5000Nodes --runs 5 -o json\n"
        "berth bench versus Plain/1000Nodes --latency-pods 200\n",
        # tests/cluster/test_restart.py
        "berth bench restart\nberth bench restart --running 100000 --runs 2 --kills 5 -o json\n",
        # tests/bench/latency
        "berth bench latency --minutes 5\nberth bench latency --minutes 60 --turns 4\n"
        "berth bench latency ZoneSpread/5000Nodes --rate 100 --alive 2000\n",
    ],
    "docs/performance.md": [
        # tests/bench/figures
        "berth bench figures --write docs/performance.md\n"
        "berth bench figures large --only Plain --write docs/performance.md\n",
    ],
    # tests/cluster/test_two_schedulers.py runs the bench; the nodes are those of a cluster.
    "docs/how-to/two-schedulers.md": [
        "make envtest\nberth bench two-schedulers\n"
        "berth bench two-schedulers kube-berth parted --rate 45 -o json\n",
        "kubectl label node n1 n2 example.com/scheduler=berth\n"
        "kubectl taint node n1 n2 example.com/scheduler=berth:NoSchedule\n",
    ],
    "docs/how-to/run-kubernetes-specs.md": [
        "make e2e\n",
        "make e2e E2E_ARGS='--runs 2 --at-once --keep .cache/e2e'\n"
        "make e2e E2E_ARGS='--scheduler berth --focus SchedulerPreemption'\n",
    ],
    # tests/house/test_envtest.py says what the variable builds.
    "docs/how-to/test-on-a-real-api-server.md": [
        "make envtest\n",
        "export ENVTEST_K8S_VERSION=v1.38.0-rc.0\nmake envtest\nmake test PYTEST_ARGS=tests/cluster\n",
        "make test PYTEST_ARGS=tests/cluster\n",
    ],
    # tests/examples/test_languages.py builds and tests; the last line serves until it is ended.
    "examples/go/README.md": [
        "examples/go/build.sh\ncd examples/go && go test ./...\n"
        "BERTH_PLUGIN_ENDPOINT=127.0.0.1:0 bin/smallest\n"
    ],
    "examples/typescript/README.md": [
        "examples/typescript/build.sh\ncd examples/typescript && npm test\n"
        "BERTH_PLUGIN_ENDPOINT=127.0.0.1:0 node dist/smallest.js\n"
    ],
    "examples/gpu_share/README.md": [
        # tests/examples/test_gpu_share_package.py
        "pip install ./sdk ./examples/gpu_share\n"
        "berth-sdk serve GpuShare --listen unix:/run/berth/plugins/gpu-share.sock\n",
        # needs the trace
        "python examples/openb/openb_manifests.py --data DIR --out openb\n"
        "berth bench openb --data DIR --config examples/gpu_share/scheduler.yaml"
        " --dump-placements placements.csv\n"
        "python examples/openb/check_placements.py --manifests openb --placements placements.csv"
        " --shared-gpus\n",
    ],
}
"""Blocks that are not run here, by page: those that run this very test, or take too long."""

NEED_A_CLUSTER = {"docs/how-to/deploy.md", "docs/how-to/run-on-a-cluster.md"}
"""Pages that `tests/cluster/test_walk.py` runs on a real API server."""

SLOW_PAGES = {
    "docs/how-to/check-conformance.md",
    "docs/how-to/from-an-extender.md",
    "docs/how-to/measure.md",
    "docs/how-to/place-a-plugin.md",
    "docs/how-to/schedule-gangs.md",
    "docs/how-to/serve-as-an-extender.md",
    "docs/how-to/would-it-fit.md",
    "docs/tutorial/first-plugin.md",
}
"""Pages that take longest; `make test-all` runs them."""

each_page = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
each_page_that_does_something = pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.long] if page.name in SLOW_PAGES else [])
        for page in PAGES
        if page.blocks and page.name not in NEED_A_CLUSTER
    ],
)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder like a clone: it contains the examples, and its modules can be imported."""
    # Not tmp_path: the path of a Unix socket has 107 bytes at most.
    path = Path(tempfile.mkdtemp(prefix="berth-docs-"))
    # Without what other tests build beside this one.
    built = shutil.ignore_patterns(
        "__pycache__", "node_modules", "target", "bin", "dist", "generated", "*.pb.go"
    )
    shutil.copytree(REPOSITORY / "examples", path / "examples", ignore=built)
    (path / ".venv").symlink_to(sys.prefix)
    monkeypatch.chdir(path)
    monkeypatch.syspath_prepend(str(path))
    known = set(sys.modules)
    yield path
    for name in set(sys.modules) - known:
        if str(path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    shutil.rmtree(path)  # removes the link to .venv, not its target


@pytest.mark.sampled(every=12)
@each_page_that_does_something
def test_every_block_does_what_the_page_says(page: Page, folder: Path) -> None:
    workspace = Workspace(page, folder)
    try:
        workspace.run()
    finally:
        workspace.close()


@each_page
def test_every_block_names_a_language_that_is_known(page: Page) -> None:
    unknown = [(block.line, block.language) for block in page.blocks if block.language not in LANGUAGES]
    assert unknown == []


def test_blocks_that_other_tests_run_are_exactly_these() -> None:
    found = {page.name: [block.text for block in page.blocks if block.runs_elsewhere] for page in PAGES}
    assert {name: blocks for name, blocks in found.items() if blocks} == RUN_ELSEWHERE
