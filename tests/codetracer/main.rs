//! CodeTracer recordings as whole programs see them: from a recorder's files, pipe or socket
//! through the relay, to the directory that the viewer keeps.

mod input;
mod output;
