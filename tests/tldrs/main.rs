//! The `tldrs` daemon and its commands, as programs: what clients may rely on, in conversations of our
//! own and in those that were recorded with the reference.

mod clients;
mod commands;
mod conversations;
mod differences;
mod exports;
mod hostile;
mod recorded;
mod shared_directories;
mod shutdown;
mod sockets;

/// An event of some name.
fn event(name: &str, ts: u32) -> String {
    format!(r#"{{"name":"{name}","cat":"demo","ph":"X","ts":{ts},"dur":1,"pid":100,"tid":1}}"#)
}

/// Events of these names, one to a line.
fn events(names: &[&str]) -> String {
    let numbered = names.iter().zip(1..);
    numbered.map(|(name, ts)| event(name, ts) + "\n").collect()
}

/// The same as the reference exports them.
fn array(names: &[&str]) -> String {
    format!("[{}]\n", events(names).trim_end().replace('\n', ",\n"))
}
