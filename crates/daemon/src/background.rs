//! Running in the background (daemonize).
//!
//! The usual way, to fork twice, is not possible in safe Rust. Instead the program starts itself
//! again with the same arguments and a marker in its environment, by which the new process knows
//! that it runs in the background. The standard input of the new process is a pipe to the process
//! in the foreground, which returns when it reads there that the new process is ready, or when the
//! pipe is closed because the process has ended.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{chdir, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// The message to the process in the foreground. If the pipe is closed without it, the start has
/// failed.
const READY: &[u8] = b"ready";

/// Whether this process runs in the background: the environment variable `marker` is set.
#[must_use]
pub fn is_background(marker: &str) -> bool {
    std::env::var_os(marker).is_some()
}

/// Starts this program again in the background, and waits until it is ready or has ended. Returns
/// whether it is ready; if not, it has printed the reason on standard error.
///
/// `marker` is the name of an environment variable of this program alone: a process that inherits
/// it by accident behaves as if it ran in the background.
///
/// # Errors
/// If the new process cannot be started.
pub fn start_in_background(marker: &str) -> io::Result<bool> {
    let (pipe, child_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let name = std::env::args_os().next().unwrap_or_default();
    // Scripts find the process by the name under which the program was called.
    Command::new(find_program(&name)?)
        .arg0(&name)
        .args(std::env::args_os().skip(1))
        .env(marker, "1")
        // The command owns this end, and is dropped with the statement: as long as this process had
        // it open, reading the other one would not end.
        .stdin(child_end)
        .spawn()?;
    let mut message = Vec::new();
    File::from(pipe).read_to_end(&mut message)?;
    Ok(message == READY)
}

/// The file of this program, even if it has been removed or replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// Finds the path of this program by the name by which it was called, if that leads to the same
/// file: the system names the process after the path. Otherwise returns the path as the system
/// knows it, or [`SELF`] if the file is not there any more.
fn find_program(name: &OsStr) -> io::Result<PathBuf> {
    let real = std::env::current_exe()?;
    let id = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    let this = id(Path::new(SELF));
    let named = PathBuf::from(name);
    let candidates = if named.components().count() > 1 {
        vec![named]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|directory| directory.join(&named))
            .collect()
    };
    let is_this = |path: &PathBuf| this.is_some() && id(path) == this;
    let found = candidates.into_iter().chain([real]).find(is_this);
    Ok(found.unwrap_or_else(|| SELF.into()))
}

/// Leaves the session and the working directory of the process in the foreground. The working
/// directory is `/` afterwards.
///
/// # Errors
/// If the working directory cannot be changed.
pub fn detach() -> io::Result<()> {
    // Fails if this process leads a process group already, as it does when a service manager has
    // started it.
    let _ = setsid();
    chdir("/")?;
    Ok(())
}

/// Tells the process in the foreground that this one is ready, and closes the pipe. If `is_silent`,
/// standard output and standard error lead to `/dev/null` from now on.
///
/// # Errors
/// If `/dev/null` cannot be opened, or the other process is gone.
pub fn report_ready(is_silent: bool) -> io::Result<()> {
    if is_silent {
        let null = open_null()?;
        dup2_stdout(&null)?;
        dup2_stderr(&null)?;
    }
    // Last, so that all of this is done when the process in the foreground returns.
    // A pipe takes so few bytes as a whole.
    rustix::io::write(rustix::stdio::stdin(), READY)?;
    close_stdin()
}

/// Makes standard input lead to `/dev/null`.
///
/// # Errors
/// If `/dev/null` cannot be opened.
pub fn close_stdin() -> io::Result<()> {
    dup2_stdin(open_null()?.as_fd())?;
    Ok(())
}

fn open_null() -> io::Result<OwnedFd> {
    Ok(File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?
        .into())
}
