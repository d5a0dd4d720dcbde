//! A target as text: a relay or directory of `test-live`, the relay of `consumer` and `tldrs` in
//! one URL or in two on lines of their own, and an address to listen on. What is accepted prints as
//! a text with the same meaning.
#![no_main]

use std::fmt::Display;
use std::sync::LazyLock;

use consumer::uplink::target::RelayTarget;
use daemon::endpoint::{Endpoint, EndpointError};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use viewer::attach::target::Target;

/// An empty directory, so that no target is a directory by accident.
static DIRECTORY: LazyLock<TempDir> = LazyLock::new(|| {
    let directory = fuzz::output();
    std::env::set_current_dir(directory.path()).expect("a directory");
    directory
});

fuzz_target!(|text: &str| {
    // First, because targets are looked for in the working directory.
    LazyLock::force(&DIRECTORY);
    read_alike(text, &str::parse::<Target>);
    read_alike(text, &str::parse::<RelayTarget>);
    if let Some((control, data)) = text.split_once('\n') {
        read_ports_alike(control, data);
    }
    read_alike(text, &str::parse::<Endpoint>);
    read_alike(text, &Endpoint::parse_quic);
    read_http_alike(text);
});

/// Checks that what is read prints as a text that is read alike.
fn read_alike<T, E>(text: &str, read: &dyn Fn(&str) -> Result<T, E>)
where
    T: PartialEq + Display + std::fmt::Debug,
    E: Display,
{
    let Some(target) = checked(read(text)) else {
        return;
    };
    let printed = target.to_string();
    assert_eq!(checked(read(&printed)).as_ref(), Some(&target), "{printed}");
}

/// Checks that a message changes no terminal, whatever the text was.
fn checked<T, E: Display>(read: Result<T, E>) -> Option<T> {
    let error = read.as_ref().err().map(ToString::to_string);
    let error = error.unwrap_or_default();
    assert!(!error.contains(char::is_control), "{error:?}");
    read.ok()
}

/// Checks that what is read of a relay, whose ports have URLs of their own, prints as a text that
/// is read alike.
fn read_ports_alike(control: &str, data: &str) {
    let Some(target) = checked(RelayTarget::from_port_urls(control, data)) else {
        return;
    };
    let printed = target.to_string();
    let again = match printed.split_once(" and ") {
        Some((control, data)) if control.starts_with('t') => {
            RelayTarget::from_port_urls(control, data)
        }
        _ => printed.parse(),
    };
    assert_eq!(checked(again).as_ref(), Some(&target), "{printed}");
}

/// Checks that what is read of an address for HTTP prints as a URL that is read alike.
fn read_http_alike(text: &str) {
    let Some(endpoint) = checked(Endpoint::parse_http(text)) else {
        return;
    };
    let printed = endpoint.to_string();
    let again: Result<Endpoint, EndpointError> = printed.parse();
    assert_eq!(checked(again).as_ref(), Some(&endpoint), "{printed}");
}
