//! The real peers, from Debian's packages.

use std::process::Command;

use anyhow::{Context, bail};
use tests::peers;

/// Makes sure that the real peers are there: installs what is missing if it may.
///
/// # Errors
/// If something is missing that it may not, or cannot, install: with the command that would.
pub(crate) fn provide() -> anyhow::Result<()> {
    let missing = peers::missing();
    if missing.is_empty() {
        return Ok(());
    }
    let install = peers::install_command(&missing);
    if !may_install() {
        bail!("missing programs; as root, run:\n\n    apt-get update && {install}\n");
    }
    eprintln!("xtask: installing {}", missing.join(", "));
    for command in ["apt-get update", install.as_str()] {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().unwrap_or_default());
        let status = program
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .status();
        if !status.with_context(|| command.to_owned())?.success() {
            bail!("failed: {command}");
        }
    }
    let missing = peers::missing();
    if !missing.is_empty() {
        bail!("still missing after installation: {}", missing.join(", "));
    }
    Ok(())
}

fn may_install() -> bool {
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout == b"0\n");
    is_root && Command::new("apt-get").arg("--version").output().is_ok()
}
