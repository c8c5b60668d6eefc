package program

import (
	"strings"
	"testing"
)

func TestPackageRunnersNameTheirTool(t *testing.T) {
	for line, want := range map[string]string{
		"npx wrangler deploy":                  "wrangler deploy",
		"npx --yes wrangler@3 deploy":          "wrangler@3 deploy",
		"npx -p a -p b tool x":                 "tool x",
		"npm exec -- tool x":                   "tool x",
		"npm run build":                        "",
		"pnpm dlx surge .":                     "surge .",
		"yarn dlx -q tool":                     "tool",
		"yarn add tool":                        "",
		"bun x tool":                           "tool",
		"uv run --with a tool x":               "tool x",
		"uv tool run tool x":                   "tool x",
		"uv pip install x":                     "",
		"uvx --from pkg tool x":                "tool x",
		"pipx run --spec pkg tool":             "tool",
		"poetry run tool":                      "tool",
		"bundle exec tool x":                   "tool x",
		"npx":                                  "",
		"npx --package":                        "",
		"tool run x":                           "",
		"conda run tool --flag":                "tool --flag",
		"pnpm --filter web exec tool --flag x": "tool --flag x",
	} {
		argv := strings.Fields(line)
		var got string
		if r := runner(argv[0], argv[1:]); len(r.commands) == 1 && len(r.code) == 0 {
			got = strings.Join(r.commands[0], " ")
		} else if len(r.commands)+len(r.code) > 0 {
			t.Errorf("%s: got %q and the code %q, want one reading", line, r.commands, r.code)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// F05 F111: an option that nobody listed may take a value or not; both are
// judged, and code behind -c is found whatever stands in front.
func TestPackageRunnersAreReadBothWays(t *testing.T) {
	for line, want := range map[string]string{
		"npx -c CODE":                    "CODE",
		"npx -c=CODE":                    "CODE",
		"npx -yc CODE":                   "CODE",
		"npx --call=CODE x":              "CODE",
		"npx --otp 1 -c CODE":            "1 -c CODE | CODE",
		"npx --fetch-timeout 10 -c CODE": "10 -c CODE | CODE",
		"npm --otp 3 exec -c CODE":       "CODE",
		"npm exe -c CODE":                "CODE",
		"npm run -c CODE":                "",
		"npm exec -- tool -c x":          "tool -c x",
		"npx tool deploy -c x":           "tool deploy -c x",
		"npx --odd a b":                  "a b | b",
		"npx --odd=a b -c x":             "b -c x",
		"npx -y -p pkg -- tool -c x":     "tool -c x",
	} {
		argv := strings.Fields(line)
		r := runner(argv[0], argv[1:])
		var all []string
		for _, c := range r.commands {
			all = append(all, strings.Join(c, " "))
		}
		if got := strings.Join(append(all, r.code...), " | "); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
