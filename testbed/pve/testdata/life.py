"""The life of a sandbox, by proxmoxer: once with a token, once with a password.

Arguments: host:port, CA file. Secrets come from the environment.
"""

import os
import sys
import time

from proxmoxer import ProxmoxAPI
from proxmoxer.core import ResourceException


def finish(api, node, upid):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        status = api.nodes(node).tasks(upid).status.get()
        if status["status"] == "stopped":
            if status["exitstatus"] != "OK":
                raise SystemExit(f"{upid}: {status['exitstatus']}")
            return
        time.sleep(0.01)
    raise SystemExit(f"{upid}: does not end")


def life(api, vmid):
    node = api.nodes.get()[0]["node"]
    vms = api.nodes(node).qemu
    finish(api, node, vms(100).clone.post(newid=vmid, name=f"box{vmid}", full=0))
    vms(vmid).config.put(cores=2, tags="py;ab")
    finish(api, node, vms(vmid).status.start.post())
    finish(api, node, vms(vmid).snapshot.post(snapname="one", vmstate=1, description="words of mine"))
    names = {s["name"]: s for s in vms(vmid).snapshot.get()}
    assert names["one"]["vmstate"] == 1 and names["one"]["description"] == "words of mine", names
    assert names["current"]["parent"] == "one", names
    finish(api, node, vms(vmid).snapshot("one").rollback.post())
    assert vms(vmid).status.current.get()["status"] == "running"
    finish(api, node, vms(vmid).snapshot("one").delete())
    try:
        vms(vmid).delete()
        raise SystemExit("a running VM was destroyed")
    except ResourceException as e:
        assert e.status_code == 500 and "is running - destroy failed" in str(e), e
    try:
        vms(vmid).snapshot.post(snapname="a.b")
        raise SystemExit("a bad name was accepted")
    except ResourceException as e:
        assert e.status_code == 400, e
    finish(api, node, vms(vmid).status.stop.post())
    finish(api, node, vms(vmid).delete())
    assert [v["vmid"] for v in vms.get()] == [100], vms.get()


host, ca = sys.argv[1], sys.argv[2]
name, port = host.split(":")
token = ProxmoxAPI(name, port=int(port), user="sp@pve", token_name="t1", token_value=os.environ["TOKEN"], verify_ssl=ca)
life(token, 201)
password = ProxmoxAPI(name, port=int(port), user="root@pam", password=os.environ["PASSWORD"], verify_ssl=ca)
life(password, 202)
print("ok")
