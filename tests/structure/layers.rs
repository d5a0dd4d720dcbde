//! Modules in layers: of two modules side by side, at most one uses the other, also by way of
//! further ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use crate::source::{packages, sources};

/// The path of a module from the root of its crate: `["store", "pool"]`.
type ModulePath = Vec<String>;

/// The modules of `relayd` in layers: each may use those before it, and none of those after it.
const RELAYD: [&[&str]; 7] = [
    &["store"],
    &["publish"],
    &["ingest"],
    &["registry"],
    &["archiver"],
    &["producer", "live"],
    &["net"],
];

#[test]
fn no_crate_has_a_circle_of_modules() {
    let mut circles = Vec::new();
    for package in packages() {
        for (parent, graph) in graphs(&package) {
            for (module, used) in &graph {
                let back = used.keys().filter(|other| reaches(&graph, other, module));
                for other in back {
                    let parent = parent.join("::");
                    let files = &used[other];
                    circles.push(format!(
                        "{package} {parent}: {module} -> {other} in {files:?}"
                    ));
                }
            }
        }
    }
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn modules_of_the_relay_use_only_the_layers_below_them() {
    let graphs = graphs("relayd");
    let top = &graphs[&Vec::new()];
    let layer = |module: &str| RELAYD.iter().position(|layer| layer.contains(&module));
    let mut seen = 0;
    for (module, used) in top {
        let Some(own) = layer(module) else { continue };
        seen += 1;
        for (other, files) in used {
            let is_below = layer(other).is_none_or(|other| other < own);
            assert!(is_below, "{module} uses {other} in {files:?}");
        }
    }
    assert_eq!(seen, RELAYD.concat().len(), "a layer is missing: {top:?}");
}

/// For each module, which of the modules beside it it uses, and in which files.
type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<PathBuf>>>;

/// Returns the graph of the children of each module of a package's library or program.
fn graphs(package: &str) -> BTreeMap<ModulePath, Graph> {
    let mut modules = BTreeSet::new();
    let mut uses = Vec::new();
    let folder = Path::new(package).join("src");
    for source in sources(package) {
        let Ok(path) = source.path.strip_prefix(&folder) else {
            continue;
        };
        let mut visitor = Uses {
            module: module_path(path),
            modules: BTreeSet::new(),
            found: Vec::new(),
        };
        visitor.modules.insert(visitor.module.clone());
        visitor.visit_file(&source.tree());
        modules.extend(visitor.modules);
        let found = visitor.found.into_iter();
        uses.extend(found.map(|(from, to)| (from, to, source.path.clone())));
    }
    let mut graphs = BTreeMap::<ModulePath, Graph>::new();
    for (from, to, file) in uses {
        let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        let (Some(user), Some(used)) = (from.get(common), to.get(common)) else {
            continue;
        };
        let is_module = |name: &String| {
            let mut path = from[..common].to_vec();
            path.push(name.clone());
            modules.contains(&path)
        };
        if is_module(user) && is_module(used) {
            let graph = graphs.entry(from[..common].to_vec()).or_default();
            let files = graph.entry(user.clone()).or_default();
            files.entry(used.clone()).or_default().insert(file);
        }
    }
    graphs
}

/// Whether a module uses another, by way of any others.
fn reaches(graph: &Graph, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            let used = graph.get(module).into_iter().flat_map(BTreeMap::keys);
            next.extend(used.map(String::as_str));
        }
    }
    false
}

/// Returns the module that is in a file: `store/pool.rs` and `store/pool/mod.rs` are `["store",
/// "pool"]`.
fn module_path(file: &Path) -> ModulePath {
    let file = file.with_extension("");
    let parts = file.iter().map(|part| part.to_string_lossy().into_owned());
    parts
        .filter(|part| !matches!(part.as_str(), "mod" | "lib" | "main"))
        .collect()
}

/// The paths in a file that begin with `crate`, `self` or `super`, each with the module that it
/// stands in.
struct Uses {
    module: ModulePath,
    modules: BTreeSet<ModulePath>,
    found: Vec<(ModulePath, ModulePath)>,
}

impl Uses {
    /// Adds a path, unless another crate's.
    fn add(&mut self, path: &[String]) {
        let mut target = self.module.clone();
        let mut rest = path.iter();
        match rest.next().map(String::as_str) {
            Some("crate") => target.clear(),
            Some("self") => {}
            Some("super") => {
                target.pop();
            }
            _ => return,
        }
        for part in rest {
            match part.as_str() {
                "super" => {
                    target.pop();
                }
                _ => target.push(part.clone()),
            }
        }
        self.found.push((self.module.clone(), target));
    }

    fn add_use_tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_use_tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use_tree(before, tree);
                }
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                before.push(ident.to_string());
                self.add(before);
                before.pop();
            }
            syn::UseTree::Glob(_) => self.add(before),
        }
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts = path.segments.iter().map(|part| part.ident.to_string());
        self.add(&parts.collect::<Vec<_>>());
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        // Tests may use whatever they test.
        if is_test(&module.attrs) {
            return;
        }
        self.module.push(module.ident.to_string());
        self.modules.insert(self.module.clone());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    let is_cfg_test = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    };
    attributes.iter().any(is_cfg_test)
}
