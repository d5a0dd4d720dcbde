//! CodeTracer recordings as whole programs see them: from a recorder's files, pipe or socket through the relay.

mod output;
