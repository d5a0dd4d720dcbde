//! Installs the real peers from Debian's packages.

use std::process::Command;

use anyhow::bail;

use crate::stage;

/// Installs the peers that are missing, if this process is root on a system with `apt-get`.
///
/// # Errors
/// If a peer is missing and cannot be installed. The error names the command that installs it.
pub(crate) fn install_missing() -> anyhow::Result<()> {
    let missing = peers::missing();
    if missing.is_empty() {
        return Ok(());
    }
    let install = peers::install_command(&missing);
    if !can_install() {
        bail!("missing programs; as root, run:\n\n    apt-get update && {install}\n");
    }
    stage::announce(&format!("installing {}", missing.join(", ")));
    for command in ["apt-get update", install.as_str()] {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().unwrap_or_default());
        stage::run(program.args(words).env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    let missing = peers::missing();
    if !missing.is_empty() {
        bail!("still missing after installation: {}", missing.join(", "));
    }
    Ok(())
}

fn can_install() -> bool {
    // By a program: a crate for it would make this one slower to compile.
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout == b"0\n");
    is_root && Command::new("apt-get").arg("--version").output().is_ok()
}
