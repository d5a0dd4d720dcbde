//! Man pages and shell completions. The package `man` writes them from the programs' own
//! definitions.

use crate::stage;

pub(crate) fn run() -> anyhow::Result<()> {
    stage::build(
        "compiling the command lines of all programs",
        &["--bin=man"],
    )?;
    stage::announce("writing man pages and completions");
    stage::run_built("man", &[])
}
