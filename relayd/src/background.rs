//! Running on its own: the program starts itself again, under the same name, and returns when the
//! other one is ready.

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

/// In the environment of the one that runs in the background, which has a pipe to the other as its
/// standard input.
const IS_BACKGROUND: &str = "RELAYD_IN_BACKGROUND";

/// What the one says to the other through the pipe.
const READY: &[u8] = b"ready";

/// Whether this is the one that runs in the background.
#[must_use]
pub fn is_background() -> bool {
    std::env::var_os(IS_BACKGROUND).is_some()
}

/// Starts this program again in the background. Gives whether it became ready; if not, it has said
/// why on standard error.
///
/// # Errors
/// If it could not be started at all.
pub fn start() -> io::Result<bool> {
    let (pipe, child_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let name = std::env::args_os().next().unwrap_or_default();
    // By the name that it was called by, since that is how scripts find it.
    Command::new(this_program(&name)?)
        .arg0(&name)
        .args(std::env::args_os().skip(1))
        .env(IS_BACKGROUND, "1")
        .stdin(child_end)
        .spawn()?;
    let mut said = Vec::new();
    File::from(pipe).read_to_end(&mut said)?;
    Ok(said == READY)
}

/// Where this program is: by the name that it was called by, if that leads here, so that the system
/// calls the process after it too.
fn this_program(name: &OsStr) -> io::Result<PathBuf> {
    let real = std::env::current_exe()?;
    let id = |path: &Path| path.metadata().map(|about| (about.dev(), about.ino())).ok();
    let this = id(&real);
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
    let found = candidates.into_iter().find(is_this);
    Ok(found.unwrap_or(real))
}

/// Leaves the session and directory of the one that started it.
///
/// # Errors
/// As the system says.
pub fn leave() -> io::Result<()> {
    // It may lead a session already, if a service manager did this before.
    let _ = setsid();
    chdir("/")?;
    Ok(())
}

/// Says that it is ready, and lets go of the pipe, and of standard output and error if it is to be
/// silent.
///
/// # Errors
/// As the system says.
pub fn ready(is_silent: bool) -> io::Result<()> {
    if is_silent {
        let null = null()?;
        dup2_stdout(&null)?;
        dup2_stderr(&null)?;
    }
    // Last: whoever waits for it finds all this done.
    rustix::io::write(rustix::stdio::stdin(), READY)?;
    close_stdin()
}

/// Nothing is read from standard input.
///
/// # Errors
/// As the system says.
pub fn close_stdin() -> io::Result<()> {
    dup2_stdin(null()?.as_fd())?;
    Ok(())
}

fn null() -> io::Result<OwnedFd> {
    Ok(File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?
        .into())
}
