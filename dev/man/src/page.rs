//! One man page: the sections of clap, and those of `sections`.

use std::io::{self, Write};

use clap::Command;
use clap_mangen::Man;

use crate::sections::{ALL, Entry};

/// The name and text of a command's page. A program's page has the sections of the program as well;
/// the pages of its commands refer to it.
pub(crate) fn render(command: Command, section: &str) -> io::Result<(String, Vec<u8>)> {
    let help = command.get_after_help().map(ToString::to_string);
    let blocks = Blocks::of(help.as_deref().unwrap_or_default());
    // A command of a program has no sections of its own: its page ends earlier.
    let program = ALL
        .iter()
        .find(|sections| sections.program == command.get_name());
    let has_options = command
        .get_arguments()
        .any(|argument| !argument.is_hide_set());
    let has_commands = command.has_subcommands();
    let has_version = command.get_version().is_some();
    let man = Man::new(command).section(section);
    let mut text = Vec::new();
    // Section by section, because others come between those of clap.
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if has_options {
        man.render_options_section(&mut text)?;
    }
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    write_block(&mut text, "NOTES", &blocks.notes)?;
    let Some(program) = program else {
        write_block(&mut text, "ENVIRONMENT", &blocks.environment)?;
        write_block(&mut text, "EXIT STATUS", &blocks.exit_status)?;
        write_block(&mut text, "EXAMPLES", &blocks.examples)?;
        return Ok((man.get_filename(), text));
    };
    write_entries(&mut text, "FILES", program.files)?;
    write_entries(&mut text, "ENVIRONMENT", program.environment)?;
    write_entries(&mut text, "SIGNALS", program.signals)?;
    // That of the help, if it has one.
    if blocks.exit_status.is_empty() {
        write_entries(&mut text, "EXIT STATUS", program.exit_status)?;
    } else {
        write_block(&mut text, "EXIT STATUS", &blocks.exit_status)?;
    }
    write_block(&mut text, "EXAMPLES", &blocks.examples)?;
    writeln!(text, ".SH \"SEE ALSO\"\n{}", escaped(program.see_also))?;
    if has_version {
        man.render_version_section(&mut text)?;
    }
    Ok((man.get_filename(), text))
}

/// The text after the options of `--help`, by what it is about.
#[derive(Debug, Default)]
struct Blocks {
    examples: String,
    /// Only of a command: `sections` says more about a program's.
    environment: String,
    exit_status: String,
    notes: String,
}

impl Blocks {
    fn of(help: &str) -> Self {
        let mut blocks = Self::default();
        let mut is_example = false;
        for paragraph in help.split("\n\n") {
            let (head, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
            // Examples may be several paragraphs, all of which are indented but for the heading.
            is_example &= paragraph.starts_with(' ');
            let (block, text) = match head {
                "Examples:" => {
                    is_example = true;
                    (&mut blocks.examples, rest)
                }
                "Exit status:" => (&mut blocks.exit_status, rest),
                "Variables:" => (&mut blocks.environment, rest),
                _ if is_example => (&mut blocks.examples, paragraph),
                // A single line: `sections` says more.
                _ if head.starts_with("Exit status: ") => continue,
                _ => (&mut blocks.notes, paragraph),
            };
            if !block.is_empty() {
                block.push_str("\n\n");
            }
            block.push_str(text);
        }
        blocks
    }
}

/// Writes text as it is, with its line breaks.
fn write_block(page: &mut Vec<u8>, heading: &str, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    // Line breaks in examples have a meaning.
    writeln!(page, ".SH \"{heading}\"\n.nf\n{}\n.fi", escaped(text))
}

fn write_entries(page: &mut Vec<u8>, heading: &str, entries: &[Entry]) -> io::Result<()> {
    writeln!(page, ".SH \"{heading}\"")?;
    for (term, meaning) in entries {
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(term), escaped(meaning))?;
    }
    Ok(())
}

/// Text for roff: no backslash, quote or dot of it is taken for a request.
fn escaped(text: &str) -> String {
    // roff prints a bare hyphen as a character that cannot be pasted into a shell.
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins so is a request to roff.
    let lines = text.lines().map(|line| match line.as_bytes().first() {
        Some(b'.' | b'\'') => format!("\\&{line}"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn page_of_each_program_has_files_environment_signals_exit_status_and_examples() {
        for (command, section) in [
            (relayd::cli::CommandLine::command(), "8"),
            (consumer::cli::Arguments::command(), "1"),
            (test_live::cli::Arguments::command(), "1"),
            (tldrs::cli::Arguments::command(), "1"),
        ] {
            let program = command.get_name().to_owned();
            let (name, text) = render(command, section).unwrap();
            assert_eq!(name, format!("{program}.{section}"));
            let text = String::from_utf8(text).unwrap();
            for heading in [
                "FILES",
                "ENVIRONMENT",
                "SIGNALS",
                "EXIT STATUS",
                "EXAMPLES",
                "SEE ALSO",
            ] {
                let line = format!(".SH \"{heading}\"\n");
                assert_eq!(text.matches(&line).count(), 1, "{program}: {heading}");
                let section = text.split(&line).nth(1).unwrap();
                assert!(!section.starts_with(".SH"), "{program}: {heading} is empty");
            }
            assert!(!text.contains("Variables:"), "{program}");
            assert!(!text.contains("EXTRA"), "{program}");
        }
    }

    #[test]
    fn lines_that_begin_with_a_dot_or_quote_are_text() {
        assert_eq!(escaped(".so x\n'y\n-a \\n"), "\\&.so x\n\\&'y\n\\-a \\en");
    }
}
