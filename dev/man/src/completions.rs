//! What shells complete: the scripts of `clap_complete`, with two defects mended. It takes the
//! first word of a program for a command or for an operand, never for either, and in bash it finds
//! no command of a program that has a hyphen in its name.

use clap::Command;
use clap_complete::{Generator, Shell, generate};

/// Shells for which there are completions.
pub(crate) const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Returns the name and the text of the script that completes a program of this name.
pub(crate) fn render(shell: Shell, program: &Command, name: &'static str) -> (String, String) {
    let mut script = Vec::new();
    generate(
        shell,
        &mut without_operands(program, name),
        name,
        &mut script,
    );
    let script = String::from_utf8_lossy(&script).into_owned();
    let script = match shell {
        Shell::Bash => script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")),
        Shell::Zsh if has_files(program) => with_files(&script, name),
        _ => script,
    };
    (shell.file_name(name), script)
}

/// Whether files are among the operands of a program that has commands, too.
fn has_files(program: &Command) -> bool {
    let mut operands = program.get_positionals();
    program.has_subcommands() && operands.any(|operand| !operand.is_hide_set())
}

/// Returns the program without its operands, if it has commands. The script for zsh would expect a
/// command after them.
fn without_operands(program: &Command, name: &'static str) -> Command {
    if !program.has_subcommands() || program.get_positionals().next().is_none() {
        return program.clone();
    }
    let options = program.get_arguments();
    let options = options.filter(|argument| !argument.is_positional());
    Command::new(name)
        // An option of the program prints it, if one does.
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(true)
        .disable_help_flag(program.is_disable_help_flag_set())
        .disable_help_subcommand(program.is_disable_help_subcommand_set())
        .args(options.cloned())
        .subcommands(program.get_subcommands().cloned())
}

/// Lets a script for zsh complete files where a command may be, and after a first word that is
/// none.
fn with_files(script: &str, name: &str) -> String {
    let commands = format!("    _describe -t commands '{name} commands' commands \"$@\"\n");
    let end = format!("        esac\n    ;;\nesac\n}}\n\n(( $+functions[_{name}_commands] ))");
    assert!(
        script.contains(&commands) && script.contains(&end),
        "clap_complete writes these lines"
    );
    let with_commands = script.replace(&commands, &format!("{commands}    _files\n"));
    with_commands.replace(&end, &format!("            (*) _files && ret=0 ;;\n{end}"))
}
