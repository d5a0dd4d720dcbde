//! The packages of `cargo xtask package`: installed, upgraded and removed in a fresh Debian, with
//! recordings running; the archive of static programs and the image for containers, unpacked and
//! run.
//!
//! `debian` is a fresh Debian in namespaces, with or without systemd; `built` are the packages.

mod alternatives;
mod archive;
mod built;
mod collector;
mod completions;
mod debian;
mod others;
mod policy;
mod walks;
