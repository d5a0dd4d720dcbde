//! Links relayd with relocations in the compact form (`DT_RELR`) if the C library of this host
//! reads it, as glibc does since 2.36: the program is 0.2 MB smaller, on disk and in memory. It
//! then needs that C library or a later one.

use std::env;
use std::process::Command;

/// The first version of glibc that reads compact relocations.
const FIRST_GLIBC: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_native = env::var_os("HOST") == env::var_os("TARGET");
    let has_glibc = env::var_os("CARGO_CFG_TARGET_ENV").is_some_and(|target| target == "gnu");
    if is_native && has_glibc && glibc().is_some_and(|version| version >= FIRST_GLIBC) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Version of the glibc of this host. None: it cannot be found out.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    // "glibc 2.36"
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
