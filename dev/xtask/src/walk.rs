//! Walks of users through the page `doc/five-minutes.md`: `tests/packages/walks.rs`.

use clap::{Args, ValueEnum};

use crate::{packages, stage};

/// Which user walks.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// The user; all, one after the other, if it is left out
    user: Option<User>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum User {
    Newcomer,
    Collector,
    Lttng,
    Rust,
    Tef,
    Codetracer,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    packages::install_missing()?;
    let user = options.user.and_then(|user| user.to_possible_value());
    let tests = match &user {
        Some(user) => format!("walks::{}", user.get_name()),
        None => "walks::".to_owned(),
    };
    let options = "--ignored --nocapture --test-threads=1";
    stage::cargo(
        "walks of users, each on a Debian that has nothing",
        &format!("test --package=tests --test=packages -- {tests} {options}"),
        &[],
    )
}
