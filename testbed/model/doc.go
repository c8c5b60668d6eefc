// Package model is a stand-in model server: it speaks the HTTP of model servers
// and answers from a script. No language model is behind it.
//
// # Overview
//
// New takes an Answer, a function from a Request to the Turn that answers it.
// A Script is the usual one: a list of turns, one for each request. A turn has
// text, tool calls, a declared think time and perhaps a Fault, which is one of
// the ways in which real servers go wrong.
//
//	POST /v1/chat/completions                            OpenAI, stream or not
//	POST /v1beta/models/M:generateContent                Gemini
//	POST /v1beta/models/M:streamGenerateContent?alt=sse  Gemini, stream
//	POST /v1beta/models/M:countTokens                    Gemini
//
// Clients ask side questions: how hard a task is, who speaks next. Such a
// request has no tools and wants JSON. The server answers it by itself, with
// the plainest value that its schema allows, and takes no turn of the script
// for it. The same goes for countTokens.
//
// Requests returns what was asked so far; Count is how many requests came. Trials
// are the tool calls that were given out, with what came back of each: the proof
// that a client tried them.
//
// # Invariants
//
//   - Every answer, also a refusal, has Name in the Server header, and Name is
//     the system fingerprint or model version in the body. A report that used
//     this server calls it by that name.
//   - A recorded request holds the body only: never a header, so no key.
//   - A body over MaxBody is refused with 413, one that is not understood with
//     400 and the protocol's own form of error. No request makes the server panic.
//   - The declared think time passes before the first byte of the answer, and
//     ends early when the client leaves or the server is closed. So does a hang.
//
// # Limits
//
// Keys are not checked. Token counts are a quarter of the bytes of text, not a
// tokenizer's. Images and other parts that are not text are passed over. A
// script belongs to one conversation: two at a time share its turns.
package model
