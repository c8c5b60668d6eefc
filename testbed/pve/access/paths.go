package access

import "regexp"

// reObject is where entries can be: the paths of the objects that there are.
var reObject = regexp.MustCompile(`^/(` +
	`access(/groups(/[\w.-]+)?|/realm(/[\w.-]+)?)?` +
	`|nodes(/[\w.-]+)?` +
	`|pool(/[\w.-]+){0,3}` +
	`|sdn(/(controllers|dns|fabrics|ipams)(/[\w.-]+)?|/zones(/[\w.-]+(/[\w.-]+(/[1-9][0-9]{0,3})?)?)?)?` +
	`|storage(/[\w.-]+)?` +
	`|vms(/[1-9][0-9]{2,})?` +
	`|mapping(/[\w.-]+(/[\w.-]+)?)?` +
	`)?$`)

// IsObject reports whether a normalized path is one that can have entries.
func IsObject(path string) bool { return reObject.MatchString(path) }
