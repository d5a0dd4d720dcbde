//! One module prints: it knows what to do when the reader is gone.

use syn::visit::{self, Visit};

use crate::source::{Source, packages, sources};

/// The module that prints.
const PRINTING_MODULE: &str = "crates/daemon/src/output.rs";

/// Packages that users do not run.
const DEVELOPMENT_PACKAGES: [&str; 6] = [
    "dev/benches",
    "dev/fuzz",
    "dev/man",
    "dev/peers",
    "dev/xtask",
    "tests",
];

const PRINTING_MACROS: [&str; 5] = ["dbg", "eprint", "eprintln", "print", "println"];

#[test]
fn programs_print_by_the_module_that_handles_closed_outputs() {
    let packages = packages().into_iter();
    let programs = packages.filter(|package| !DEVELOPMENT_PACKAGES.contains(&package.as_str()));
    let mut found = Vec::new();
    for source in programs.flat_map(|package| sources(&format!("{package}/src"))) {
        if source.path.ends_with(PRINTING_MODULE) || is_test(&source) {
            continue;
        }
        let mut prints = Prints::default();
        prints.visit_file(&source.tree());
        let path = source.path.display();
        found.extend(prints.found.iter().map(|what| format!("{path}: {what}")));
    }
    assert!(found.is_empty(), "use {PRINTING_MODULE}: {found:#?}");
}

/// Whether a file is a module of unit tests.
fn is_test(source: &Source) -> bool {
    let parts = source.path.with_extension("");
    parts.iter().any(|part| part == "tests")
}

/// What a file prints outside its unit tests.
#[derive(Default)]
struct Prints {
    found: Vec<String>,
}

impl<'ast> Visit<'ast> for Prints {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let name = called.path.segments.last().unwrap().ident.to_string();
        if PRINTING_MACROS.contains(&name.as_str()) {
            self.found.push(format!("{name}!"));
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if is_standard_output(&call.receiver) && call.method != "is_terminal" {
            self.found.push(format!("io::stdout().{}", call.method));
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// Whether an expression is a call of `io::stdout`.
fn is_standard_output(receiver: &syn::Expr) -> bool {
    let syn::Expr::Call(call) = receiver else {
        return false;
    };
    let syn::Expr::Path(function) = &*call.func else {
        return false;
    };
    let names = function.path.segments.iter().map(|part| &part.ident);
    let names: Vec<_> = names.map(ToString::to_string).collect();
    names.ends_with(&["io".to_owned(), "stdout".to_owned()])
}
