package program

import (
	"regexp"
	"strings"

	"savepoint/policy/shell"
)

// patterns are the words that matter in code, whatever the language.
type patterns struct {
	spawn, remove, network, server, get, getJoined, reads, decode, run, eval, built, write, direct, list, fork, kill, stdin, home, shellPipe pattern
}

// pattern is a regular expression with plain texts of which every match holds
// one: most code holds none, and looking for plain texts is much faster.
type pattern struct {
	*regexp.Regexp
	needles []string
}

func find(expr string, needles ...string) pattern {
	return pattern{Regexp: regexp.MustCompile(expr), needles: needles}
}

// MatchString reports whether the text holds a match.
func (p pattern) MatchString(text string) bool {
	found := false
	p.spots(text, func(part string, _ int) bool {
		found = p.Regexp.MatchString(part)
		return found
	})
	return found
}

// may reports whether a match is possible.
func (p pattern) may(text string) bool {
	if len(p.needles) == 0 {
		return true
	}
	for _, n := range p.needles {
		if strings.Contains(text, n) {
			return true
		}
	}
	return false
}

var words = patterns{
	spawn: find(`\b(?:os\.(?:system|popen|exec[lv]p?e?|spawn[lv]p?e?|posix_spawn)|subprocess|pty\.spawn|commands\.getoutput|system|exec|execl|execv|execvp|popen|qx|shell_exec|passthru|proc_open|child_process|execSync|spawnSync|execFileSync|spawn|execFile|Deno\.Command|Deno\.run|Bun\.spawn|Open3|IO\.popen|os\.execute|io\.popen|getattr|ProcessBuilder|Runtime\.getRuntime|System\.cmd|os:cmd|shell-command|call-process|start-process|run-program|syscmd|esyscmd|Process\.system|callCommand|shell script|sys\.process|process\.binding|create_subprocess_\w+|os\.cmd)\b|readpipe|\bshell\s*\(|Sys\.command|Unix\.system|process\.cmd|\.execute\(|%x\W|\bopen\s*\(?\s*['"]\s*\||['"](?:-\||\|-)['"]|`+"`",
		"system", "readpipe", "command", "process.cmd", "subprocess", "exec", "popen", "spawn", "getoutput", "qx", "passthru", "proc_open", "child_process", "Deno.", "Open3", "getattr", "ProcessBuilder", "getRuntime", "System.cmd", "os:cmd", "shell", "call-process", "start-process", "run-program", "syscmd", "callCommand", "sys.process", "process.binding", "os.cmd", "%x", "open", "-|", "|-", "`"),
	remove: find(`\b(?:rmtree|remove_tree|rmSync|rmdirSync|unlinkSync|unlink|rm_rf|rm_r|remove_entry|remove_dir|removeSync|removeAll|rmdir|os\.remove|os\.unlink|os\.removedirs|file\.remove|rimraf|FileUtils|Deno\.remove\w*|fs\.rm|shutil\.move|truncate|writeFileSync|chmodSync|chownSync|(?:os\.)?ch(?:mod|own)|(?:os\.)?rename|renameSync|replace\(|symlink(?:Sync)?|delete-directory|delete-file)\b|\bFile\.(?:delete|unlink|rm|rm_rf|rename|symlink)|\brm\s*\(|\bdelete\s*\(|\bfile delete\b|Remove-Item`,
		"rm(", "rm (", "rmtree", "rmSync", "rmdir", "rm_", "s.rm", "e.rm", "remove", "Remove", "unlink", "move", "trunc", "writeFileSync", "chmod", "chown", "rename", "replace(", "symlink", "delete", "rimraf", "FileUtils"),
	network: find(`\b(?:socket\.socket|create_connection|connect\s*\(\s*(?:\(|\w+\s*,\s*(?:sockaddr|pack))|TCPSocket|UDPSocket|IO::Socket|fsockopen|stream_socket_client|net\.connect|net\.Socket|createConnection|(?:requests|httpx|aiohttp|axios|got|superagent|(?i:session)|client)(?:\.\w+)?(?:\(\))?\.(?:post|put|patch|delete)\b|(?:requests|httpx)\.request\(|urlopen\([^)]*data|urlopen\(\s*[^(),]+,\s*(?:open|data|b['"]|bytes|json|urllib|str\(|\w+\.(?:read|encode|dump))|require\(['"](?:axios|got|superagent|node-fetch|undici|needle|request|phin|ky)['"]\)(?:\.default)?\.(?:post|put|patch|delete|request)|Request\(\s*['"][^'"]*['"]\s*,|method\s*[:=]\s*['"](?:POST|PUT|DELETE|PATCH)|http\.client|smtplib|ftplib|paramiko|telnetlib|require\(['"](?:node:)?(?:net|dgram|tls)['"]\)|Net::(?:FTP|SMTP|SSH|SCP)|Net::HTTP\.(?:post\w*|put\w*|delete|patch)|Net::HTTP::(?:Post|Put|Delete|Patch)|LWP::UserAgent|CURLOPT_(?:POST\w*|UPLOAD|CUSTOMREQUEST|PUT)|mail\s*\(\s*['"$])`,
		"sock", "connect", "Connection", "TCPSocket", "UDPSocket", "IO::Socket", "net.Socket", ".post", ".put", ".patch", ".delete", ".request(", "urlopen", "Request(", "method", "http.client", "smtplib", "ftplib", "paramiko", "telnetlib", "require(", "Net::", "LWP::", "CURLOPT_", "mail"),
	server: find(`http\.server|SimpleHTTPServer|socketserver|createServer|\bWEBrick\b|TCPServer|Deno\.serve|Bun\.serve|HTTP::Daemon|Invoke-RestMethod`,
		"http.server", "SimpleHTTP", "socketserver", "createServer", "WEBrick", "TCPServer", "Deno.serve", "Bun.serve", "HTTP::Daemon", "Invoke-Rest"),
	get: find(`require\(['"](?:node:)?https?['"]\)\.(?:get|request)|\b(?:urlopen|urlretrieve|requests\.get|httpx\.get|fetch|https?\.get|axios\.get|Net::HTTP\.get\w*|URI\.open|LWP::Simple|curl_exec|importScripts)\b|file_get_contents\s*\(\s*['"]https?:`,
		"http", "urlopen", "urlretrieve", "requests.get", "httpx.get", "fetch", "http.get", "https.get", "axios.get", "Net::HTTP", "URI.open", "LWP::Simple", "file_get_contents", "curl_exec", "importScripts"),
	// getJoined is an address to which something is added.
	getJoined: find(`\.(?:get|request)\(\s*['"]https?://[^'"]*['"]\s*[+.]|\b(?:urlopen|requests\.get|httpx\.get|fetch|https?\.get|axios\.get|Net::HTTP\.get\w*|file_get_contents)\s*\(\s*(?:URI\()?\s*(?:[fF]?['"`+"`"+`]https?://[^'"`+"`"+`]*['"`+"`"+`]\s*[+.%]|[fF]['"]https?://[^'"]*\{|`+"`"+`https?://[^`+"`"+`]*\$\{|"https?://[^"]*[#$]\{?\w)`, "http"),
	reads: find(`(?:^|[^\w.])open\s*\(\s*['"]|\.read_text|\.read_bytes|readFile|File\.read|IO\.read|file_get_contents\s*\(\s*['"][^h]|os\.environ|process\.env|getenv|ENV\[|check_output|popen|execSync|gethostname|hostname\(\)|userInfo|getuser|os\.uname`,
		"open", ".read", "readFile", "File.", "IO.", "file_get", "environ", ".env", "getenv", "ENV[", "check_output", "execSync", "hostname", "userInfo", "getuser", "uname"),
	decode: find(`\b(?:b64decode|b32decode|b16decode|fromhex|unhexlify|a85decode|b85decode|decode_base64|base64_decode|decode64|unpack|pack|atob|Buffer\.from|fromCharCode|fromCodePoint|chr|hex2bin|gzinflate|gzuncompress|zlib\.decompress|rot13|codecs\.decode|marshal\.loads|str_rot13|strrev|reversed|reverse)\b|\[::-1\]|\.tr\(`,
		"decode", "fromhex", "hexlify", "pack", "atob", "Buffer.from", "fromChar", "fromCode", "chr", "hex2bin", "gz", "decompress", "rot13", "codecs", "marshal", "rev", "[::-1]", ".tr("),
	run: find(`\b(?:exec|eval|__import__|system|popen|Function|importlib|getattr|create_function|instance_eval|pickle\.loads|runpy|runIn\w+Context)\b|(?:^|[^.\w])compile\s*\(|\bsubprocess\b|child_process`,
		"exec", "eval", "__import__", "system", "popen", "Function", "importlib", "getattr", "create_function", "pickle.loads", "runpy", "runIn", "compile", "subprocess", "child_process"),
	eval: find(`(?:^|[^.\w$])(?:exec|eval)\b|\bnew Function\b|\binstance_eval\b|\bvm\.run`,
		"exec", "eval", "Function", "vm.run"),
	built: find(`\b(?:getattr|__import__|import_module|require|globals\(\)|locals\(\)|__dict__|send|public_send|process\.binding|const_get|global|globalThis|window|process|Object)\s*[\[(][^)\]]*['"]\s*[+.]\s*['"]|\bprocess\.binding\b|\$\w+\s*=\s*['"][^'"]*['"]\s*\.\s*['"][^'"]*['"]\s*;.*(?:\$\w+\s*\(|\beval\b)`,
		"getattr", "__import__", "import_module", "require", "globals", "locals", "__dict__", "send", "process.binding", "const_get", "global", "window", "process", "Object", "$"),
	kill: find(`\bkill\s*\(?\s*['"]?-?\w+['"]?\s*,\s*-1|\bkill\s*\(?\s*['"]?-?(?:9|KILL|SIGKILL|TERM|15)['"]?\s*,\s*1\b|(?:os\.kill(?:pg)?|process\.kill|posix_kill)\(\s*-?1\b|\.reboot\s*\(\s*(?:0x|\d{6,})|\bsyscall\s*\(\s*(?:169|142|&?SYS_reboot)`,
		"kill", "reboot", "syscall"),
	stdin: find(`/dev/stdin|sys\.stdin|code\.interact|InteractiveConsole|STDIN\.read|php://stdin|\binput\(\)`,
		"stdin", "STDIN", "input()", "nteract"),
	// direct and list are calls whose first text is a command line, or whose
	// list is an argument vector, for sure.
	direct: find(`(?:\b(?:os\.system|os\.popen|os\.cmd|subprocess\.(?:run|call|check_output|check_call|Popen|getoutput|getstatusoutput)|create_subprocess_shell|shell_exec|passthru|readpipe|execSync|os\.execute|io\.popen|Sys\.command|Unix\.system)|(?:^|[\s;({])(?:system|shell))\s*\(?\s*[fFrRbBu]?(['"])`,
		"os.", "subprocess", "shell", "passthru", "readpipe", "execSync", "system", "io.popen", "Sys."),
	list: find(`\b(?:subprocess\.(?:run|call|check_output|check_call|Popen)|s\.(?:run|call))\s*\(\s*\[([^\]]*)\]`,
		"subprocess", "s.run", "s.call"),
	fork: find(`fork\(\)\s*for\s+\w+\s+in\s+(?:iter|itertools|range\(\s*\d{4,})|while\s*\(?\s*(?:1|true|!0)\s*\)?\s*\{?\s*(?:pcntl_fork|Process\.fork|spawn|exec|system\s*\([^)]*&)|(?:loop\s*(?:do|\{)|for\s*\(;;\)\s*\{?|setInterval\()[^;]*(?:\bfork\b|spawn\(|system\s*\([^)]*&\s*['"])|fork\s*(?:\(\))?\s*while|while\s*\(?\s*(?:True|true|1|:)?\s*\)?\s*[:{]?\s*(?:\w+\.)?fork|for\s*\(;;\)\s*\{?\s*fork|loop\s*\{?\s*fork|fork\s*while\s*(?:1|true|fork)|fork\(\)\s+for\b`,
		"fork", "spawn", "while", "loop", "for(", "for (", "setInterval"),
	write: find(`\bopen\s*\(?\s*['"][^'"]*['"]\s*,\s*['"][wax+]|\bopen\b.*(?:,\s*|\(\s*|mode\s*=\s*)['"](?:[wax]|r\+)[bt+]*['"]|writeFile|appendFile|createWriteStream|copyFile|cpSync|writefile|file_put_contents|File\.(?:write|open)|fopen\s*\([^)]*,\s*['"][wax+c]|\.write_text|\.write_bytes|\.touch\(|`+
		`shutil\.copy\w*|\bos\.(?:replace|link|mkdir|makedirs|mknod|mkfifo|truncate)\b|O_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND)|inplace\s*=\s*(?:True|1)|truncateSync|openSync\([^)]*['"][wa]|write-region|\bwrite\s*\(\s*['"][/~]|open\s*\([^)]*['"]>|open\s*\(?\s*(?:my\s+)?[$*]?\w+\s*,|set output|Set-Content|Out-File|spit\b`,
		"open", "os.", "O_", "inplace", "truncateSync", "rite", "append", "copy", "cpSync", "put_contents", "touch", "set output", "Set-Content", "Out-File", "spit", "File."),
	home: find(`Path\.home\(\)|os\.homedir\(\)|Dir\.home|expanduser\(\s*['"]~['"]|(?:ENV|environ)\[\s*['"]HOME|process\.env\.HOME`,
		"home", "Home", "expanduser", "HOME"),
	shellPipe: find(`^\s*(?:/\S*/)?(?:ba|da|z|k)?sh\s*$`),
}

// outside judges what code does beyond the machine.
func (j *Judge) outside(w *shell.Walker, sc *shell.Scope, u *Use, text string) {
	if words.server.MatchString(text) || words.network.MatchString(text) && !onlyLocal(text) {
		w.Report(sc, FactCodeNetwork, u.Name, u.Span)
	}
	if clientLibrary.MatchString(text) && clientWrites.MatchString(text) && !onlyLocal(text) {
		w.Report(sc, FactCodeNetwork, u.Name, u.Span)
	}
	if strings.Contains(text, "boto") && cloudWrites.MatchString(text) && !onlyLocal(text) {
		w.Report(sc, FactCodeNetwork, u.Name, u.Span)
	}
	if lookupJoined.MatchString(text) && words.reads.MatchString(text) {
		w.Report(sc, FactCodeNetwork, u.Name, u.Span) // the name that is looked up carries what was read
	}
	if loadsRemote.MatchString(text) {
		w.Report(sc, shell.FactFetched, u.Name, u.Span)
	}
	if strings.Contains(text, "://") {
		for _, l := range literalsOf(text) {
			if strings.Contains(l, "://") && isMetadata(hostOf(l)) {
				w.Report(sc, FactMetadata, l, u.Span)
				break
			}
		}
	}
	if remoteInvoke.MatchString(text) {
		w.Report(sc, shell.FactFetched, u.Name, u.Span)
	}
	if !words.get.MatchString(text) {
		return
	}
	if runsFetched.MatchString(text) {
		w.Report(sc, shell.FactFetched, u.Name, u.Span)
	}
	if words.eval.MatchString(text) {
		w.Report(sc, shell.FactFetched, u.Name, u.Span)
	}
	if words.getJoined.MatchString(text) && words.reads.MatchString(text) {
		w.Report(sc, FactCodeNetwork, u.Name, u.Span) // the address carries what was read
	}
}

// bareEval runs what the current line holds.
var bareEval = regexp.MustCompile(`\b(?:eval|system|exec)\s*(?:;|}|$)`)

var (
	clientLibrary = find(`(?:\bimport\s+|\bfrom\s+|require\s*\(\s*['"])(?:requests|httpx|aiohttp|urllib3|boto3|botocore|axios|got|superagent|node-fetch|undici)\b`,
		"requests", "httpx", "aiohttp", "urllib3", "boto", "axios", "got", "superagent", "node-fetch", "undici")
	// runsFetched is a request of which the answer is run where it is made, or
	// by way of a variable.
	runsFetched = find(`\b(?:os\.system|os\.popen|subprocess\.\w+|execSync|exec|eval|popen|system|check_output|spawnSync|exec_module|instance_eval)\s*\(\s*(?:\w+\s*\(\s*)?(?:urllib|urlopen|requests|httpx|await|Net::|URI|open\(['"]http|file_get_contents\(['"]http)|\b(?:os\.system|os\.popen|execSync)\s*\(\s*[A-Za-z_]\w*\s*[.)]`,
		"system", "popen", "subprocess", "exec", "eval", "check_output", "spawnSync")
	remoteInvoke = find(`(?is)\b(?:iex|invoke-expression)\b.*\b(?:iwr|irm|curl|wget|invoke-webrequest|invoke-restmethod|downloadstring|downloadfile|webclient)\b|\b(?:iwr|irm|invoke-webrequest|invoke-restmethod|downloadstring)\b.*\|\s*(?:iex|invoke-expression)\b|(?:^|[\s:;|'"])(?:so|source|luafile|load)\s+https?://`,
		"iex", "IEX", "Iex", "nvoke-", "NVOKE-", "source http", "so http", "luafile http", "load http")
	cloudWrites  = find(`\.(?:delete|terminate|put|create|update|modify|stop|start|reboot|run|send|publish|invoke|attach|detach|revoke|authorize|disable|enable|copy|restore|purge|tag|untag|cancel|reset|deregister|release)_?\w*\(`, ".")
	clientWrites = find(`\.(?:post|patch|put_object|upload_\w+|delete_\w+|request\s*\(\s*['"](?:POST|PUT|PATCH|DELETE))\b|\bs\.put\s*\(`, ".p", ".upload", ".delete", ".request")
	lookupJoined = find(`\b(?:gethostbyname\w*|getaddrinfo|dns\.\w+|require\(['"](?:node:)?dns['"]\)\.\w+|resolve\w*)\s*\([^)]*(?:\)[^)]*)?[+.]`, "gethostby", "getaddrinfo", "dns", "resolve")
	// evalUnknown is code that runs text which is no literal and no local file.
	evalUnknown = find(`(?:^|[^.\w$])(?:exec|eval)\s*\(\s*(?:[A-Za-z_$@][\w.\[\]'"$]*\s*[,)\[(.+])`, "exec", "eval")
	loadsStdin  = find(`\b(?:require|do|include|source|dofile|loadfile|load)(?:_once)?\s*\(?\s*['"](?:/dev/stdin|php://stdin)|code\.interact|InteractiveConsole`, "stdin", "code.interact", "InteractiveConsole")
	loadsRemote = find(`\b(?:include|require|import|dofile|source)(?:_once)?\s*\(?\s*['"](?:https?|data|ftp|php)://?`, "http", "data:", "ftp", "php:")
	evalFile    = find(`(?:^|[^.\w$])(?:exec|eval)\s*\(\s*(?:open|Path|pathlib|compile|function|async|File|IO|fs|require)\b`, "exec", "eval")
)

var hostLiteral = regexp.MustCompile(`^(?:\w+://)?(?:[^@/\s]*@)?([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?:[:/?].*)?$`)

// onlyLocal reports whether every host that code names is this machine.
func onlyLocal(text string) bool {
	local := false
	for _, l := range literalsOf(text) {
		switch {
		case l == "localhost", l == "127.0.0.1", l == "::1", strings.HasPrefix(l, "http://localhost"), strings.HasPrefix(l, "http://127.0.0.1"):
			local = true
		case hostLiteral.MatchString(l):
			return false
		}
	}
	return local
}
