package pve

import (
	"maps"
	"slices"

	"savepoint/testbed/pve/schema"
)

func splitDelete(c *call) []string { return schema.SplitList(c.p.Str("delete")) }

func ruleItem(f firewall, pos int) map[string]any {
	item := wallItem(f.Rules[pos])
	item["pos"], item["digest"] = pos, f.digest()
	return item
}

// listRules is GET …/firewall/rules.
func listRules(_ *call, f firewall) (any, error) {
	out := []map[string]any{}
	for pos := range f.Rules {
		out = append(out, ruleItem(f, pos))
	}
	return out, nil
}

// rulePos is the rule in the path.
func (c *call) rulePos(f firewall) (int, error) {
	pos := c.p.Int("pos", 0)
	if pos < 0 || pos >= len(f.Rules) {
		return 0, fail("no rule at position %d", pos)
	}
	return pos, nil
}

// readRule is GET …/firewall/rules/{pos}.
func readRule(c *call, f firewall) (any, error) {
	pos, err := c.rulePos(f)
	if err != nil {
		return nil, err
	}
	return ruleItem(f, pos), nil
}

// addRule is POST …/firewall/rules: a new rule is the first, and off unless
// the call turns it on.
func addRule(c *call, f *firewall) error {
	rule := options{"enable": "0"}
	changeOptions(c, rule)
	if err := checkRule(c, rule); err != nil {
		return err
	}
	f.Rules = slices.Insert(f.Rules, 0, rule)
	return nil
}

// putRule is PUT …/firewall/rules/{pos}: it moves the rule or changes it.
func putRule(c *call, f *firewall) error {
	pos, err := c.rulePos(*f)
	if err != nil {
		return err
	}
	rule := maps.Clone(f.Rules[pos])
	if c.p.Has("moveto") {
		to := c.p.Int("moveto", 0)
		if to > pos { // the places are those before the move
			to--
		}
		f.Rules = slices.Delete(f.Rules, pos, pos+1)
		f.Rules = slices.Insert(f.Rules, min(to, len(f.Rules)), rule)
		return nil
	}
	changeOptions(c, rule)
	if err := checkRule(c, rule); err != nil {
		return err
	}
	f.Rules[pos] = rule
	return nil
}

// deleteRule is DELETE …/firewall/rules/{pos}.
func deleteRule(c *call, f *firewall) error {
	pos, err := c.rulePos(*f)
	if err != nil {
		return err
	}
	f.Rules = slices.Delete(f.Rules, pos, pos+1)
	return nil
}

// checkRule says what is wrong with a rule beyond its parameters' form.
func checkRule(c *call, rule options) error {
	bad := map[string]string{}
	switch rule["type"] {
	case "group":
		bad["action"] = "security group '" + rule["action"] + "' does not exist"
	default:
		if a := rule["action"]; a != "ACCEPT" && a != "DROP" && a != "REJECT" {
			bad["action"] = "unknown action '" + a + "'"
		}
	}
	if c.p.Has("vnet") != (rule["type"] == "forward") && rule["type"] != "group" {
		bad["type"] = "rules of type '" + rule["type"] + "' do not belong here"
	}
	for _, name := range []string{"dport", "sport"} {
		if rule[name] != "" && rule["proto"] == "" {
			bad["proto"] = "missing property - '" + name + "' requires this property"
		}
	}
	if len(bad) > 0 {
		return badParams(bad)
	}
	return nil
}
