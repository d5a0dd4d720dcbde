//! Files, functions and comment lines that a reader can take in at once.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::source::{packages, sources};

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 90;
const MAX_COMMENT_COLUMNS: usize = 100;

#[test]
fn no_source_file_is_longer_than_600_lines() {
    let sources = packages().into_iter().flat_map(|package| sources(&package));
    let lines = sources.map(|source| (source.text.lines().count(), source.path));
    let long: Vec<_> = lines.filter(|(lines, _)| *lines > MAX_FILE_LINES).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn no_function_is_longer_than_90_lines() {
    let mut long = Vec::new();
    for source in packages().into_iter().flat_map(|package| sources(&package)) {
        let mut functions = LongFunctions::default();
        functions.visit_file(&source.tree());
        let found = functions.found.into_iter();
        long.extend(found.map(|(name, lines)| (source.path.clone(), name, lines)));
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn no_comment_line_is_wider_than_100_columns() {
    let mut wide = Vec::new();
    for source in packages().into_iter().flat_map(|package| sources(&package)) {
        for (number, line) in source.text.lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > MAX_COMMENT_COLUMNS {
                wide.push(format!("{}:{}", source.path.display(), number + 1));
            }
        }
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

/// The functions of a file that are too long, with their lengths in lines.
#[derive(Default)]
struct LongFunctions {
    found: Vec<(String, usize)>,
}

impl LongFunctions {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (first, last) = (signature.span().start().line, block.span().end().line);
        let lines = last - first + 1;
        if lines > MAX_FUNCTION_LINES {
            self.found.push((signature.ident.to_string(), lines));
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}
