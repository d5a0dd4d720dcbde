//! The tables of commands in the pages of the protocols are those of the code.

use std::fs;

use crate::source::root;

/// Returns the name of a command as the pages have it: `ADD_STREAM` of `AddStream`.
fn page_name(code: impl std::fmt::Debug) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

fn assert_rows(page: &str, rows: impl IntoIterator<Item = String>) {
    let text = fs::read_to_string(root().join("doc").join(page)).unwrap();
    for row in rows {
        let is_there = text.lines().any(|line| line.starts_with(&row));
        assert!(is_there, "{page} has no line `{row}...`");
    }
}

#[test]
fn every_command_has_its_row_in_the_page_of_its_protocol() {
    use relay_proto::CommandCode as Relay;
    use viewer_proto::CommandCode as Viewer;

    let (extensions, commands): (Vec<Relay>, Vec<_>) =
        Relay::ALL.iter().partition(|code| code.is_extension());
    let rows = commands.into_iter().map(|code| {
        let (number, since) = (code.code(), code.since().0);
        format!("| {number} | 2.{since} | {} | ", page_name(code))
    });
    assert_rows("relay-protocol.md", rows);
    let rows = extensions
        .into_iter()
        .map(|code| format!("| {:#x} | {} | ", code.code(), page_name(code)));
    assert_rows("protocol-extensions.md", rows);
    let rows = Viewer::ALL
        .iter()
        .map(|&code| format!("| {} | {} | ", code.code(), page_name(code)));
    assert_rows("live-protocol.md", rows);
}
