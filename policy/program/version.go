package program

// help reports whether the only argument asks for help or the version.
func help(argv []string) bool {
	if len(argv) == 2 && runsForVersion(argv[0]) {
		return false
	}
	switch len(argv) {
	case 2:
		switch argv[1] {
		case "--help", "--version":
			return true
		case "version":
			switch argv[0] {
			case "go", "terraform", "tofu", "helm", "hugo", "buf", "kustomize":
				return true
			}
		case "-V", "-v", "-version":
			switch argv[0] {
			case "node", "npm", "java", "javac", "gcc", "cargo", "rustc", "nginx", "pip", "pip3", "ssh":
				return argv[0] != "pip" && argv[0] != "pip3" || argv[1] == "-V"
			}
		}
	case 3:
		return argv[0] == "kubectl" && argv[1] == "version" && argv[2] == "--client"
	}
	return false
}

// runsForVersion names tools that run something of the working directory even
// to print their version: a tool chain or a copy of themselves that a file of
// the project names, options with agents, plug-ins, the project's own code.
func runsForVersion(name string) bool {
	switch name {
	case "cargo", "rustc", "rustup", "rustdoc", "rustfmt", "yarn", "pnpm", "pnpx", "corepack", "mvn", "gradle", "sbt", "bazel", "dotnet", "rails", "rake", "pytest", "tox", "nox",
		"poetry", "vagrant", "direnv", "mise", "asdf":
		return true
	}
	return false
}
