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
		rest, _ := runner(argv[0], argv[1:])
		if got := strings.Join(rest, " "); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
