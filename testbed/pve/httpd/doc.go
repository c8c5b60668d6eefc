// Package httpd is the HTTP/1.x layer of the lab's API server.
//
// # Overview
//
// The API that the lab speaks puts the first line of an error into the reason
// of the status line, refuses chunked bodies, closes the connection on every
// error and answers some malformed requests by silence. net/http cannot do
// these things, so this package reads requests and writes responses itself,
// over connections that are handed to Server.Serve.
//
// # Invariants
//
//   - One request at a time per connection; the next one is read only after the
//     response of the last was written.
//   - A response with a status of 400 or more ends its connection.
//   - Close returns only after every connection's goroutine has ended.
//
// # Limits
//
// HTTP/1.0 and 1.1 only, no pipelining of pending responses, no trailers, no
// chunked bodies in either direction. Request bodies are read by the handler
// through Request.Body and bounded by it.
package httpd
