"""A client of the lab's API that is not ours: proxmoxer clones, starts,
snapshots, rolls back and removes a real guest, with the lab's token and with
root's password. Standard input is the output of: savepoint lab status -o json
"""

import json
import sys
import time
from urllib.parse import urlparse

from proxmoxer import ProxmoxAPI

lab = json.load(sys.stdin)
url = urlparse(lab["api_url"])


def finish(node, upid):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        status = node.tasks(upid).status.get()
        if status["status"] == "stopped":
            assert status["exitstatus"] == "OK", (upid, status["exitstatus"])
            return
        time.sleep(0.1)
    raise SystemExit(f"{upid} does not end")


def agent_answers(vm):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            vm.agent.ping.post()
            return
        except Exception as e:  # not running yet
            last = e
            time.sleep(0.3)
    raise SystemExit(f"the guest agent does not answer: {last}")


def run(vm, *command):
    pid = vm.agent("exec").post(command=list(command))["pid"]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = vm.agent("exec-status").get(pid=pid)
        if status["exited"]:
            return status.get("exitcode"), status.get("out-data", "")
        time.sleep(0.2)
    raise SystemExit(f"{command} does not end")


def story(api, vmid):
    names = [n["node"] for n in api.nodes.get()]
    assert names == ["pve1"], names
    node = api.nodes("pve1")
    template = next(v["vmid"] for v in node.qemu.get() if v.get("template"))
    finish(node, node.qemu(template).clone.post(newid=vmid, name=f"px{vmid}"))
    vm = node.qemu(vmid)
    finish(node, vm.status.start.post())
    agent_answers(vm)
    finish(node, vm.snapshot.post(snapname="one", vmstate=1))
    assert run(vm, "rm", "-rf", "/root", "/etc/passwd")[0] == 0
    assert run(vm, "test", "-e", "/etc/passwd")[0] == 1
    finish(node, vm.snapshot("one").rollback.post())
    assert vm.status.current.get()["status"] == "running"
    agent_answers(vm)
    assert run(vm, "test", "-s", "/etc/passwd")[0] == 0
    finish(node, vm.snapshot("one").delete())
    finish(node, vm.status.stop.post())
    finish(node, vm.delete())
    assert vmid not in [v["vmid"] for v in node.qemu.get()]


user, token = lab["token_id"].split("!")
common = {"port": url.port, "verify_ssl": lab["ca_file"], "timeout": 60}
story(ProxmoxAPI(url.hostname, user=user, token_name=token, token_value=lab["token_secret"], **common), 701)
story(ProxmoxAPI(url.hostname, user=lab["user"], password=lab["password"], **common), 702)
print("ok")
