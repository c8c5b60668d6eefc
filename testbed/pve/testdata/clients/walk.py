"""proxmoxer walks through the API: the cluster, its networks, the life of a VM.

Arguments: host:port, CA file, the major version ("8", "9"). The secrets come
from the environment. Every part runs with a token and with a password.
"""

import os
import sys
import time

from proxmoxer import ProxmoxAPI
from proxmoxer.core import ResourceException

MAJOR = int(sys.argv[3])


def same(what, got, want):
    assert got == want, f"{what}: {got!r}, want {want!r}"


def refused(status, text, call, *args, **kw):
    """A call that must fail with this status and a reason that has the text."""
    try:
        got = call(*args, **kw)
    except ResourceException as e:
        assert e.status_code == status and text in str(e), f"{e}, want {status} {text}"
        return e
    raise AssertionError(f"accepted, and answered {got!r}; want {status} {text}")


def misspelt(call, *args, **kw):
    """A call with a bad parameter. This client loses the parameter's name."""
    return refused(400, "Parameter verification failed", call, *args, **kw)


def finish(api, upid, want="OK"):
    """Waits for a task, as its name says on which node."""
    node = api.nodes(upid.split(":")[1])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        status = node.tasks(upid).status.get()
        if status["status"] == "stopped":
            assert want in status["exitstatus"], (upid, status["exitstatus"])
            return status
        time.sleep(0.01)
    raise AssertionError(f"{upid} does not end")


def named(items, key):
    return {i[key]: i for i in items}


def cluster(api):
    """What there is: nodes, storages, pools, users."""
    version = api.version.get()
    same("major version", int(version["version"].split(".")[0]), MAJOR)
    assert {"release", "repoid"} <= version.keys(), version

    nodes = named(api.nodes.get(), "node")
    same("nodes", sorted(nodes), ["pve1", "pve2", "pve3"])
    assert all(n["status"] == "online" and n["maxmem"] > 0 for n in nodes.values()), nodes
    status = api.cluster.status.get()
    whole = [i for i in status if i["type"] == "cluster"]
    assert len(whole) == 1 and whole[0]["quorate"] == 1 and whole[0]["nodes"] == 3, status
    same("local nodes", [i["name"] for i in status if i.get("local")], ["pve1"])
    for node in nodes:
        info = api.nodes(node).status.get()
        assert info["memory"]["total"] > 0 and info["pveversion"].startswith("pve-manager/"), info
        assert api.nodes(node).version.get()["version"] == version["version"]
        assert abs(api.nodes(node).time.get()["time"] - time.time()) < 60
        assert "vmbr0" in named(api.nodes(node).network.get(type="any_bridge"), "iface")
    assert api.nodes("localhost").version.get() == version
    refused(500, "hostname lookup 'nowhere' failed", api.nodes("nowhere").status.get)
    refused(501, "not implemented", api.nodes("pve1").nothing.get)

    kinds = {i["type"] for i in api.cluster.resources.get()}
    assert {"node", "storage", "qemu"} <= kinds, kinds
    same("kinds of vms", {i["type"] for i in api.cluster.resources.get(type="vm")}, {"qemu"})
    misspelt(api.cluster.resources.get, type="lxc")
    assert isinstance(api.cluster.tasks.get(), list)
    assert int(api.cluster.nextid.get()) == 101
    misspelt(api.cluster.nextid.get, vmid=100)

    storages = named(api.storage.get(), "storage")
    same("storages", sorted(storages), ["local", "nfs", "tank"])
    same("storage", api.storage("nfs").get()["shared"], 1)
    node = api.nodes("pve2")
    images = named(node.storage.get(content="images", enabled=1), "storage")
    same("storages for images", sorted(images), ["local", "nfs", "tank"])
    assert images["local"]["avail"] > 0 and images["nfs"]["active"] == 1, images
    same("status", node.storage("tank").status.get()["type"], "zfspool")
    same("content", node.storage("local").content.get(), [])


def access(api):
    """Pools, users, roles, tokens and grants, made and removed."""
    api.pools.post(poolid="walk", comment="for a walk")
    same("pool", api.pools("walk").get()["comment"], "for a walk")
    assert "walk" in named(api.pools.get(), "poolid")
    refused(500, "already exists", api.pools.post, poolid="walk")

    api.access.roles.post(roleid="Walker", privs="VM.Audit,VM.PowerMgmt")
    same("role", sorted(api.access.roles("Walker").get()), ["VM.Audit", "VM.PowerMgmt"])
    api.access.groups.post(groupid="walkers", comment="they walk")
    api.access.users.post(userid="walk@pve", groups="walkers", enable=1, comment="walks")
    same("user", api.access.users("walk@pve").get()["groups"], ["walkers"])
    made = api.access.users("walk@pve").token("one").post(privsep=0, comment="mine")
    same("token", made["full-tokenid"], "walk@pve!one")
    assert "one" in named(api.access.users("walk@pve").token.get(), "tokenid")
    api.access.acl.put(path="/pool/walk", users="walk@pve", roles="Walker", propagate=1)
    entry = [e for e in api.access.acl.get() if e["ugid"] == "walk@pve"]
    assert len(entry) == 1 and entry[0]["path"] == "/pool/walk" and entry[0]["roleid"] == "Walker", entry

    other = ProxmoxAPI(HOST, port=PORT, user="walk@pve", token_name="one", token_value=made["value"], verify_ssl=CA)
    may = other.access.permissions.get()
    same("permissions", may.get("/pool/walk"), {"VM.Audit": 1, "VM.PowerMgmt": 1})
    refused(403, "Permission check failed (/pool/walk, Pool.Allocate)", other.pools("walk").delete)
    same("its vms", other.cluster.resources.get(type="vm"), [])

    api.access.acl.put(path="/pool/walk", users="walk@pve", roles="Walker", delete=1)
    api.access.users("walk@pve").token("one").delete()
    refused(401, "", other.version.get)
    api.access.users("walk@pve").delete()
    api.access.groups("walkers").delete()
    api.access.roles("Walker").delete()
    api.pools("walk").delete()
    assert "walk" not in named(api.pools.get(), "poolid")


def network(api):
    """An EVPN zone with a vnet and a subnet, applied and removed again."""
    sdn = api.cluster.sdn
    lock = {}
    if MAJOR >= 9:
        token = sdn.lock.post()
        refused(500, "invalid lock token provided", sdn.zones.post, zone="w1", type="simple")
        lock = {"lock-token": token}
    else:
        refused(501, "not implemented", sdn.lock.post)
    sdn.controllers.post(controller="walkctl", type="evpn", asn=65000, peers="10.0.0.1,10.0.0.2,10.0.0.3", **lock)
    sdn.zones.post(**lock, **{"zone": "walk", "type": "evpn", "controller": "walkctl", "vrf-vxlan": 10000, "mtu": 1450})
    sdn.vnets.post(vnet="walk0", zone="walk", tag=10001, alias="first", **lock)
    sdn.vnets("walk0").subnets.post(subnet="10.77.0.0/24", type="subnet", gateway="10.77.0.1", **lock)

    same("pending", named(sdn.zones.get(pending=1), "zone")["walk"]["state"], "new")
    same("running", sdn.zones.get(running=1), [])
    same("vnet", sdn.vnets("walk0").get()["tag"], 10001)
    subnet = sdn.vnets("walk0").subnets.get()
    same("subnets", [s["subnet"] for s in subnet], ["walk-10.77.0.0-24"])
    assert "walk0" not in named(api.nodes("pve3").network.get(type="any_bridge"), "iface")

    release = {**lock, "release-lock": 1} if lock else {}
    finish(api, sdn.put(**release))
    for node in ("pve1", "pve2", "pve3"):
        wait = time.monotonic() + 30
        while named(api.nodes(node).sdn.zones.get(), "zone").get("walk", {}).get("status") != "available":
            assert time.monotonic() < wait, api.nodes(node).sdn.zones.get()
            time.sleep(0.01)
        assert "walk0" in named(api.nodes(node).network.get(type="any_bridge"), "iface")
        same("content", [v["vnet"] for v in api.nodes(node).sdn.zones("walk").content.get()], ["walk0"])
    same("pending", [z for z in sdn.zones.get(pending=1) if z.get("state")], [])
    kind = "network" if MAJOR >= 9 else "sdn"
    zones = [r for r in api.cluster.resources.get() if r["type"] == kind and "walk" in r["id"]]
    same("resources", len(zones), 3)

    refused(500, "", sdn.zones("walk").delete)  # it is in use
    sdn.vnets("walk0").put(alias="second")
    same("changed", named(sdn.vnets.get(pending=1), "vnet")["walk0"]["state"], "changed")
    sdn.vnets("walk0").subnets("walk-10.77.0.0-24").delete()
    sdn.vnets("walk0").delete()
    sdn.zones("walk").delete()
    sdn.controllers("walkctl").delete()
    if MAJOR >= 9:
        diff = api.cluster.sdn("dry-run").get(node="pve2")
        assert "-auto walk0" in diff["interfaces-diff"], diff
    finish(api, sdn.put())
    for kind, key in ((sdn.controllers, "controller"), (sdn.zones, "zone"), (sdn.vnets, "vnet")):
        same("left", kind.get(running=1), [])


def life(api, vmid, extra):
    """A VM from nothing; then one from the template with all its snapshots."""
    node = api.nodes("pve1")
    made = node.qemu(extra)
    same("create", finish(api, node.qemu.post(
        vmid=extra, name="made", memory=128, cores=1, scsihw="virtio-scsi-pci", scsi0="local:1", net0="virtio,bridge=vmbr0",
    ))["type"], "qmcreate")
    finish(api, made.resize.put(disk="scsi0", size="+1G"))
    assert "size=2G" in made.config.get()["scsi0"]
    finish(api, node.qemu(extra).migrate.post(target="pve2"))
    refused(500, f"Configuration file 'nodes/pve1/qemu-server/{extra}.conf' does not exist", made.config.get)
    finish(api, api.nodes("pve2").qemu(extra).delete(purge=1))

    task = finish(api, node.qemu(100).clone.post(newid=vmid, name=f"walk{vmid}", full=0))
    same("clone", (task["type"], task["id"]), ("qmclone", "100"))
    vm = node.qemu(vmid)
    digest = vm.config.get()["digest"]
    vm.config.put(cores=2, tags="py;ab", description="words of mine", digest=digest, net0="virtio,bridge=vmbr0")
    refused(500, "", vm.config.put, cores=1, digest=digest)
    config = vm.config.get()
    same("config", (config["cores"], config["tags"], config["description"].strip()), (2, "ab;py", "words of mine"))
    misspelt(vm.config.put, cores="many")
    misspelt(vm.config.put, flavour="sweet")
    finish(api, vm.config.post(memory=192))
    same("memory", str(named(vm.pending.get(), "key")["memory"]["value"]), "192")

    same("off", vm.status.current.get()["status"], "stopped")
    finish(api, vm.status.start.post())
    current = vm.status.current.get()
    assert current["status"] == current["qmpstatus"] == "running" and current["agent"] == 1, current
    same("listed", named(node.qemu.get(), "vmid")[vmid]["status"], "running")
    same("resource", named(api.cluster.resources.get(type="vm"), "vmid")[vmid]["node"], "pve1")
    finish(api, vm.status.start.post(), "already running")
    talk(vm)
    snapshots(api, vm, vmid)
    refused(500, "is running - destroy failed", vm.delete)
    finish(api, vm.status.shutdown.post(timeout=5, forceStop=1))
    finish(api, vm.status.start.post())
    finish(api, vm.status.stop.post())
    misspelt(vm.snapshot.post, snapname="a.b")
    records(api, vmid)
    finish(api, vm.delete())
    same("left", [v["vmid"] for v in node.qemu.get()], [100])


def talk(vm):
    """The guest agent."""
    same("ping", vm.agent.ping.post(), {"result": {}})
    same("system", vm.agent("get-osinfo").get()["result"]["id"], "debian")
    cards = vm.agent("network-get-interfaces").get()["result"]
    same("cards", [c["name"] for c in cards], ["lo"])
    pid = vm.agent("exec").post(command=["/bin/echo", "some text"])["pid"]
    end = vm.agent("exec-status").get(pid=pid)
    same("exec", (end["exited"], end["exitcode"], end["out-data"]), (1, 0, "some text\n"))
    same("freeze", vm.agent("fsfreeze-status").post()["result"], "thawed")


def snapshots(api, vm, vmid):
    """With the memory and without it, a rollback to each, and their end."""
    finish(api, vm.snapshot.post(snapname="one", vmstate=1, description="words of mine"))
    finish(api, vm.snapshot.post(snapname="two"))
    names = named(vm.snapshot.get(), "name")
    same("names", sorted(names), ["current", "one", "two"])
    same("one", (names["one"]["vmstate"], names["one"]["description"]), (1, "words of mine"))
    same("two", (names["two"]["vmstate"], names["two"]["parent"]), (0, "one"))
    same("current", (names["current"]["parent"], names["current"]["running"]), ("two", 1))
    same("config of one", vm.snapshot("one").config.get()["cores"], 2)
    vm.snapshot("two").config.put(description="other words")
    same("new words", vm.snapshot("two").config.get()["description"].strip(), "other words")
    finish(api, vm.snapshot.post(snapname="two"), "snapshot name 'two' already used")

    vm.config.put(tags="changed")
    same("rollback", finish(api, vm.snapshot("one").rollback.post())["type"], "qmrollback")
    same("with memory", vm.status.current.get()["status"], "running")
    same("tags", vm.config.get()["tags"], "ab;py")
    finish(api, vm.snapshot("two").rollback.post())
    same("without", vm.status.current.get()["status"], "stopped")
    finish(api, vm.snapshot("two").rollback.post(start=1))
    deadline = time.monotonic() + 30
    while vm.status.current.get()["status"] != "running":
        assert time.monotonic() < deadline, "not started after the rollback"
        time.sleep(0.01)
    finish(api, vm.snapshot("two").delete())
    finish(api, vm.snapshot("one").delete())
    finish(api, vm.snapshot("one").delete(), "does not exist")
    same("left", [s["name"] for s in vm.snapshot.get()], ["current"])


def records(api, vmid):
    """What the node remembers of the VM's tasks."""
    node = api.nodes("pve1")
    tasks = node.tasks.get(vmid=vmid, source="all", limit=500)
    kinds = {t["type"] for t in tasks}
    assert {"qmstart", "qmstop", "qmshutdown", "qmsnapshot", "qmrollback", "qmdelsnapshot"} <= kinds, kinds
    bad = node.tasks.get(vmid=vmid, errors=1)
    assert bad and all(t["status"] != "OK" for t in bad), bad
    same("one kind", {t["type"] for t in node.tasks.get(vmid=vmid, typefilter="qmstart")}, {"qmstart"})
    log = node.tasks(tasks[0]["upid"]).log.get(start=0, limit=10)
    assert log and log[0]["n"] == 1 and isinstance(log[0]["t"], str), log
    gone = tasks[0]["upid"].replace(":qm", ":qx")
    misspelt(node.tasks(gone).status.get)


HOST, PORT = sys.argv[1].split(":")
PORT, CA = int(PORT), sys.argv[2]
token = ProxmoxAPI(HOST, port=PORT, user="sp@pve", token_name="t1", token_value=os.environ["TOKEN"], verify_ssl=CA)
password = ProxmoxAPI(HOST, port=PORT, user="root@pam", password=os.environ["PASSWORD"], verify_ssl=CA)
for n, way in enumerate((token, password)):
    cluster(way)
    access(way)
    network(way)
    life(way, 201 + n, 301 + n)
print("ok")
