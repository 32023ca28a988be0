package link

import "github.com/go-zookeeper/zk"

// The wire client keeps one buffer for requests as long as the session lives,
// and one for answers as long as the connection. By default each has 1.5 MB.
// Here the first has the size of the largest request, and the second one begins
// small: it grows to the largest answer of its connection.
const (
	// answerBuffer is how large the buffer for answers is at first. A list of a
	// thousand contenders fits into it.
	answerBuffer = 64 << 10
	// requestSlack is for the length of the frame, and more.
	requestSlack = 64
)

// wireBuffers sets the sizes of the wire client's buffers.
type wireBuffers struct {
	conn *zk.Conn
}

// begin is an option of the wire client: it runs before the wire client does
// anything.
func (b *wireBuffers) begin(conn *zk.Conn, maxRequest int) {
	b.conn = conn
	zk.WithMaxConnBufferSize(maxRequest + requestSlack)(conn)
}

// beforeAnswers sets the size of the next connection's buffer for answers. The
// wire client calls it before it allocates the buffer, as a part of reading the
// answer to the connect.
func (b *wireBuffers) beforeAnswers() { zk.WithMaxBufferSize(answerBuffer)(b.conn) }

// whileAnswers lets that buffer grow: the size is its limit as well. The wire
// client calls it on the goroutine that has allocated the buffer, when it reads
// for the first time. The link itself limits answers: see MaxAnswer.
func (b *wireBuffers) whileAnswers() { zk.WithMaxBufferSize(0)(b.conn) }
