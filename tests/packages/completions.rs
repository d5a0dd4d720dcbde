//! What shells complete, in the real shell.

use std::path::Path;
use std::process::Command;

use tests::{Lab, binaries};

/// Prints what the function of a program completes: the last of the words after its name.
const COMPLETE: &str = r#"
source "$0"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
function=$(complete -p "$1")
function=${function#*-F }
${function%% *} "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// Returns what bash completes the last word of a command line to.
fn completed(directory: &Path, words: &[&str]) -> Vec<String> {
    let script = directory.join(format!("{}.bash", words[0]));
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", COMPLETE])
        .arg(script)
        .args(words);
    lines_of(&mut bash)
}

fn lines_of(command: &mut Command) -> Vec<String> {
    let ended = command.output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && errors.is_empty(), "{errors}");
    let printed = String::from_utf8(ended.stdout).unwrap();
    printed.lines().map(str::to_owned).collect()
}

/// Returns the commands in the help of a program.
fn commands(program: &Path) -> Vec<String> {
    let help = lines_of(Command::new(program).arg("--help"));
    let listed = help.iter().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // Further lines of a description are indented more.
    let names = listed.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_commands_that_help_lists_and_their_options() {
    let lab = Lab::new();
    // Beside `xtask`, which runs it.
    let mut man = Command::new(binaries::xtask().with_file_name("man"));
    lines_of(man.arg(lab.path()));
    let directory = lab.path().join("completions");
    for (name, program, command, option) in [
        ("relayd", binaries::relayd(), "archive", "--help"),
        ("lttng-relayd", binaries::relayd(), "doctor", "--output"),
        ("consumer", binaries::consumer(), "rings", "--print"),
        ("test-live", binaries::test_live(), "info", "--no-events"),
        ("tldrs", binaries::tldrs(), "list", "--long"),
    ] {
        let listed = commands(program);
        assert!(listed.iter().any(|name| name == command), "{name}");
        let words = completed(&directory, &[name, ""]);
        for command in &listed {
            assert!(words.contains(command), "{name} {command}: {words:?}");
        }
        let options = completed(&directory, &[name, command, "--"]);
        assert!(options.iter().any(|word| word == option), "{options:?}");
    }
}
