package pve_test

// knownDifference is where our server answers otherwise than the recording,
// and why.
type knownDifference struct {
	version string // "" = all
	key     string // area | title | method | path | occurrence
	reason  string
}

const (
	noSDN      = "SDN is not served yet"
	noFirewall = "the VM firewall is not served yet"
	ownPaths   = "storages lie below the server's own directory"
	noLag      = "our figures are fresh; the recorded ones were up to 10 s old"
)

var knownDifferences = []knownDifference{
	{"", "1 auth | limited SDN zone create | POST | /api2/json/cluster/sdn/zones | 1", noSDN},
	{"", "1 auth | limited SDN vnet create | POST | /api2/json/cluster/sdn/vnets | 1", noSDN},
	{"", "1 auth | limited SDN subnet create | POST | /api2/json/cluster/sdn/vnets/vl/subnets | 1", noSDN},
	{"", "1 auth | limited SDN controller create | POST | /api2/json/cluster/sdn/controllers | 1", noSDN},
	{"", "1 auth | limited SDN zone delete | DELETE | /api2/json/cluster/sdn/zones/zl | 1", noSDN},
	{"", "1 auth | limited SDN zone read | GET | /api2/json/cluster/sdn/zones/zl | 1", noSDN},
	{"", "1 auth | limited SDN zone list | GET | /api2/json/cluster/sdn/zones | 1", noSDN},
	{"", "1 auth | limited SDN apply | PUT | /api2/json/cluster/sdn | 1", noSDN},
	{"9.2", "1 auth | limited SDN lock | POST | /api2/json/cluster/sdn/lock | 1", noSDN},
	{"9.2", "1 auth | limited SDN rollback | POST | /api2/json/cluster/sdn/rollback | 1", noSDN},
	{"9.2", "1 auth | limited SDN dry run | GET | /api2/json/cluster/sdn/dry-run | 1", noSDN},
	{"", "1 auth | limited reads a firewall option | GET | /api2/json/nodes/pve1/qemu/110/firewall/options | 1", noFirewall},
	{"", "1 auth | limited writes a firewall option | PUT | /api2/json/nodes/pve1/qemu/110/firewall/options | 1", noFirewall},

	{"", "2 generic | index of the node | GET | /api2/json/nodes/pve1 | 1", "the index names only what is served"},

	{"", "3 cluster | cluster status | GET | /api2/json/cluster/status | 1", "our node's address is loopback"},
	{"", "3 cluster | storage config | GET | /api2/json/storage | 1", ownPaths},
	{"", "3 cluster | one storage config | GET | /api2/json/storage/local | 1", ownPaths},

	{"", "4 qemu | locked: resource list | GET | /api2/json/cluster/resources | 1", noLag},
}
