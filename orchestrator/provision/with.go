package provision

// With returns a Provisioner that differs in what change makes of the
// configuration. The two do not wait for each other when they choose a place:
// use one at a time.
func (p *Provisioner) With(change func(*Config)) *Provisioner {
	c := p.c
	change(&c)
	return New(c)
}
