package pve_test

// knownDifference is where our server answers otherwise than the recording,
// and why.
type knownDifference struct {
	version string // "" = all
	key     string // area | title | method | path | occurrence
	reason  string
}

const (
	onlyServed = "the index names only what is served"
	ownPaths   = "storages lie below the server's own directory"
	noLag      = "our figures are fresh; the recorded ones were up to 10 s old"
)

var knownDifferences = []knownDifference{
	{"", "2 generic | index of the node | GET | /api2/json/nodes/pve1 | 1", onlyServed},

	{"", "3 cluster | cluster status | GET | /api2/json/cluster/status | 1", "our node's address is loopback"},
	{"", "3 cluster | storage config | GET | /api2/json/storage | 1", ownPaths},
	{"", "3 cluster | one storage config | GET | /api2/json/storage/local | 1", ownPaths},

	{"", "4 qemu | locked: resource list | GET | /api2/json/cluster/resources | 1", noLag},

	{"", "8 sdn | index | GET | /api2/json/cluster/sdn | 1", onlyServed},
	{"9.2", "8 sdn | dry run | GET | /api2/json/cluster/sdn/dry-run | 1", "the recorded diff names temporary files, dates and a routing daemon; ours has whole stanzas and no context"},
	{"9.2", "8 sdn | fabrics | GET | /api2/json/cluster/sdn/fabrics/all | 1", "fabrics are not served; the recorded answer is a stand-in's"},

	{"", "9 misc | members | GET | /api2/json/pools | 1", noLag},
	{"", "9 misc | resources show the pool | GET | /api2/json/cluster/resources | 1", noLag},
}
