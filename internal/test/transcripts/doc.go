// Package transcripts plays ten small scenes in virtual time, and compares what
// has happened with the files of testdata, which are for people to read. With
// the flag -update its test writes them.
//
//	0.100  B      Acquire
//	       B ──▶  list /lock                            #1-lock-0 #2-lock-1
//	0.102  B   =  granted, token (2, 1, 0)
//
// A line has the time in seconds, the client, and what happens:
//
//	     no arrow: the program does something
//	──▶  a request, and behind it what its answer says; one of several
//	     operations has a line for each
//	◀──  an event, or the end of a connection
//	  =  the program is told the result of a call, a state or a loss
//
// A message takes 1 ms in each direction, and a session timeout is 10 s. The
// lines of one instant are sorted by client; then done, heard, told, sent; then
// by connection. So no line comes before its cause. Two reads that go out
// together have no order, and are sorted by what they say. Random choices are
// taken away.
//
// #1-lock-0 is _c_<uuid>-lock-0000000000: ids and sessions are numbered as they
// appear. A token is the czxid of the directory, the number of the znode, and
// the number of handoffs. Left out are pings, and connections that only ask a
// server for its version. Each client's data is its name.
package transcripts
