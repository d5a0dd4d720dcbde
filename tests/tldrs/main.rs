//! The `tldrs` daemon and its commands as programs: what clients may rely on. Tests named `case_NN`
//! repeat the conversations that were recorded with the reference.

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

/// Returns a complete event of this name.
fn event(name: &str, ts: u32) -> String {
    format!(r#"{{"name":"{name}","cat":"demo","ph":"X","ts":{ts},"dur":1,"pid":100,"tid":1}}"#)
}

/// Lines with an event for each name, numbered from `ts` 1.
fn events(names: &[&str]) -> String {
    let numbered = names.iter().zip(1..);
    numbered.map(|(name, ts)| event(name, ts) + "\n").collect()
}

/// Returns the export of [`events`] as a JSON array, as the reference writes it.
fn array(names: &[&str]) -> String {
    format!("[{}]\n", events(names).trim_end().replace('\n', ",\n"))
}
