"""What `kvarn up` starts: pure, so the table is the test."""

import dataclasses

import pytest
from kvarn_cli.stack_plan import ProcessPlan, StackOptions, plan_stack, ports_needed

OPTIONS = StackOptions(
    model="m", prefill=1, decode=2, host="127.0.0.1", port=8000, threads=0, dtype="", engine="simulated"
)
PORTS = (11, 12, 21, 22, 31, 32)


def plans(options: StackOptions = OPTIONS, cores: int = 8, **environment: str) -> dict[str, ProcessPlan]:
    planned = plan_stack(options, PORTS[: ports_needed(options)], environment, cores, "python")
    return {plan.name: plan for plan in planned}


def flag(plan: ProcessPlan, name: str) -> str:
    return plan.command[plan.command.index(name) + 1]


def test_workers_come_before_the_router_which_knows_them_all() -> None:
    planned = plans()
    assert list(planned) == ["prefill-0", "decode-0", "decode-1", "router"]
    assert flag(planned["router"], "--workers") == "127.0.0.1:11,127.0.0.1:21,127.0.0.1:31"
    assert flag(planned["decode-1"], "--metrics-port") == "32"
    assert planned["decode-1"].command[:3] == ("python", "-m", "kvarn_decode")


@pytest.mark.parametrize(("cores", "threads", "expected"), [(8, 0, "2"), (2, 0, "1"), (8, 5, "5")])
def test_cores_are_shared_out(cores: int, threads: int, expected: str) -> None:
    plan = plans(dataclasses.replace(OPTIONS, threads=threads), cores)["decode-0"]
    assert flag(plan, "--threads") == expected
    assert plan.environment["OMP_NUM_THREADS"] == expected


def test_settings_of_one_role_do_not_reach_the_others() -> None:
    environment = plans(KVARN_PORT="1", KVARN_CACHE="/c", KVARN_LOG_LEVEL="debug", PATH="/bin")["router"].environment
    assert "KVARN_PORT" not in environment
    assert {"KVARN_CACHE": "/c", "KVARN_LOG_LEVEL": "debug", "PATH": "/bin"}.items() <= environment.items()


def test_more_flags_go_to_their_role_only() -> None:
    options = dataclasses.replace(OPTIONS, worker_args="--a '1 2'", decode_args="--d 3", router_args="--r 4", dtype="x")
    planned = plans(options)
    assert flag(planned["prefill-0"], "--a") == "1 2"
    assert "--d" not in planned["prefill-0"].command
    assert planned["decode-0"].command[-2:] == ("--d", "3")
    assert planned["router"].command[-2:] == ("--r", "4")
    assert flag(planned["decode-0"], "--dtype") == "x"
    assert "--a" not in planned["router"].command
