"""Fixtures of the system tests. They run inside the lab: tests/lab/lab run /usr/bin/python3 -m pytest tests/sys"""
import os
import subprocess
import sys
import json

import pytest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from guard import BINARY, Guard  # noqa: E402
from lab import Lab  # noqa: E402

collect_ignore_glob = []


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than a few seconds")


def pytest_sessionstart(session):
    if "LAB_DIR" not in os.environ and not session.config.option.collectonly:
        pytest.exit("these tests run inside the lab: tests/lab/lab run /usr/bin/python3 -m pytest tests/sys", 4)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for guard in getattr(item, "guards", []) + getattr(item.module, "shared_guards", []):
            report.sections.append(("stderr of the guard", guard.stderr()[-6000:]))
            report.sections.append(("last lines of its log", "\n".join(json.dumps(r) for r in guard.lines()[-6:])))


@pytest.fixture(scope="session")
def lab():
    if not os.access(BINARY, os.X_OK):
        pytest.exit("no guard at %s (GUARD_BIN names another)" % BINARY, 4)
    return Lab()


@pytest.fixture
def mark(lab):
    return lab.mark()


@pytest.fixture
def guard(lab, tmp_path, request):
    """A factory: guard(policy=..., config=...) starts one. Each is stopped at the end, and must end well."""
    request.node.guards = guards = []

    def make(**more):
        g = Guard(lab, tmp_path / ("guard%d" % len(guards)), **more)
        guards.append(g)
        return g
    yield make
    for g in guards:
        try:
            if not g.checked:
                g.stop()
        finally:
            g.kill()


@pytest.fixture(scope="module")
def shared(lab, tmp_path_factory, request):
    """One guard with the open policy for all tests of a file."""
    g = Guard(lab, tmp_path_factory.mktemp("shared"))
    request.module.shared_guards = [g]
    yield g
    try:
        g.stop()
    finally:
        g.kill()


@pytest.fixture(scope="session")
def load(lab):
    """Runs the load client: load(guard.port, "bulk.example.org:443", tunnels=10, up=..., down=...) -> its report."""
    def run(port, target, check=True, timeout=120, **options):
        command = [lab.bin + "/loader", "--proxy", "127.0.0.1:%d" % port, "--target", target, "--timeout", str(timeout)]
        for name, value in options.items():
            command += ["--" + name] if value is True else ["--" + name, str(value)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout + 30)
        assert done.returncode in (0, 1), done.stderr
        report = json.loads(done.stdout)
        assert not check or not report["failed"], report
        return report
    return run
