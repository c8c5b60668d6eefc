package pve

import "net/netip"

// SSHEndpoint says where the SSH port of the running guest with this address
// is reachable on loopback: what the lab's jump host connects to.
func (s *Server) SSHEndpoint(addr netip.Addr) (netip.AddrPort, bool) {
	for _, m := range s.members {
		if at, ok := m.sshEndpoint(addr); ok {
			return at, true
		}
	}
	return netip.AddrPort{}, false
}

func (s *Server) sshEndpoint(addr netip.Addr) (netip.AddrPort, bool) {
	for _, id := range s.vmids() {
		conf, err := s.peek(id)
		if err != nil {
			continue
		}
		m, err := s.machine(id, options{"ipconfig0": conf.main["ipconfig0"]})
		if err != nil || m.Address.Addr() != addr {
			continue
		}
		if st := s.cfg.Machines.Status(id); st.Running && st.SSH.IsValid() {
			return st.SSH, true
		}
	}
	return netip.AddrPort{}, false
}
