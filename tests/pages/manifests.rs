//! The manifests in `dev/packaging/kubernetes`, read as Kubernetes reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// A workload of a manifest: its object, and the template of its pods.
pub(crate) struct Workload {
    object: Value,
}

/// A container of a pod.
pub(crate) struct Container<'a>(&'a Value);

impl Workload {
    /// Reads the only object of a kind in a manifest.
    pub(crate) fn read(file: &str, kind: &str) -> Self {
        let mut objects = documents(file).into_iter();
        let object = objects.find(|object| object["kind"] == kind).unwrap();
        Self { object }
    }

    /// Returns the object after a strategic merge patch: lists of containers, volumes and mounts
    /// are joined by their names or paths, other lists are replaced.
    pub(crate) fn with_patch(mut self, file: &str) -> Self {
        merge(&mut self.object, &documents(file)[0]);
        self
    }

    fn pod(&self) -> &Value {
        &self.object["spec"]["template"]["spec"]
    }

    pub(crate) fn container(&self, name: &str) -> Container<'_> {
        let containers = self.containers();
        let mut found = containers.into_iter().filter(|c| c.0["name"] == name);
        found.next().unwrap()
    }

    fn containers(&self) -> Vec<Container<'_>> {
        let lists = ["initContainers", "containers"].into_iter();
        let lists = lists.filter_map(|list| self.pod()[list].as_array());
        lists.flatten().map(Container).collect()
    }

    /// Checks what Kubernetes would refuse, and what the page says of it.
    pub(crate) fn check(&self) {
        let spec = &self.object["spec"];
        let labels = &spec["template"]["metadata"]["labels"];
        assert_eq!(&spec["selector"]["matchLabels"], labels);
        let pod = self.pod();
        let security = &pod["securityContext"];
        assert_eq!(security["runAsNonRoot"], true);
        assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        // The agent takes up to 10 seconds, as does the unit of the relay.
        assert!(grace > 10);
        let templates = spec["volumeClaimTemplates"].as_array();
        let templates = templates
            .into_iter()
            .flatten()
            .map(|claim| &claim["metadata"]["name"]);
        let volumes = pod["volumes"].as_array().unwrap().iter();
        let volumes: BTreeSet<&str> = volumes
            .map(|volume| &volume["name"])
            .chain(templates)
            .map(|name| name.as_str().unwrap())
            .collect();
        let mut mounted = BTreeSet::new();
        for container in self.containers() {
            container.check();
            mounted.extend(container.mounts().into_keys());
        }
        assert_eq!(volumes, mounted);
    }
}

impl<'a> Container<'a> {
    fn check(&self) {
        let security = &self.0["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["capabilities"]["drop"][0], "ALL");
        let image = self.0["image"].as_str().unwrap();
        assert!(image.ends_with("IMAGE"), "{image} is no placeholder");
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let probe = &self.0[probe];
            let port = probe["httpGet"]["port"].as_str();
            let port = port.or(probe["tcpSocket"]["port"].as_str());
            assert!(port.is_none_or(|port| self.ports().contains_key(port)));
            let command = probe["exec"]["command"][0].as_str();
            assert!(command.is_none_or(|command| self.0["command"][0] == command));
        }
    }

    /// Returns the ports by their names.
    pub(crate) fn ports(&self) -> BTreeMap<&'a str, u64> {
        let ports = self.0["ports"].as_array().into_iter().flatten();
        let ports: Vec<_> = ports
            .map(|port| {
                let number = port["containerPort"].as_u64().unwrap();
                (port["name"].as_str().unwrap(), number)
            })
            .collect();
        let count = ports.len();
        let ports: BTreeMap<_, _> = ports.into_iter().collect();
        assert_eq!(ports.len(), count, "two ports of one name");
        ports
    }

    /// Returns the paths of the mounted volumes by their names.
    pub(crate) fn mounts(&self) -> BTreeMap<&'a str, &'a str> {
        let mounts = self.0["volumeMounts"].as_array().into_iter().flatten();
        let text = |value: &'a Value| value.as_str().unwrap();
        mounts
            .map(|mount| (text(&mount["name"]), text(&mount["mountPath"])))
            .collect()
    }

    /// Returns a command of the shell that runs the container as Kubernetes would.
    pub(crate) fn command(&self) -> String {
        let words = ["command", "args"].into_iter();
        let words = words.filter_map(|list| self.0[list].as_array()).flatten();
        let words: Vec<String> = words.map(quote).collect();
        // Kubernetes replaces references to variables itself.
        let words = words.join(" ").replace("$(POD_NAME)", "app-0");
        format!("{}exec {words}", self.environment())
    }

    /// Returns the variables of the container, as commands of the shell.
    pub(crate) fn environment(&self) -> String {
        let variables = self.0["env"].as_array().into_iter().flatten();
        let variables = variables.filter(|variable| variable["value"].is_string());
        variables
            .map(|v| {
                format!(
                    "export {}={}\n",
                    v["name"].as_str().unwrap(),
                    quote(&v["value"])
                )
            })
            .collect()
    }

    /// Returns the command that Kubernetes runs before it stops the container.
    pub(crate) fn pre_stop(&self) -> String {
        let words = self.0["lifecycle"]["preStop"]["exec"]["command"].as_array();
        let words: Vec<String> = words.unwrap().iter().map(quote).collect();
        format!("{}{}", self.environment(), words.join(" "))
    }

    /// Returns the command of a probe, and the path of one over HTTP.
    pub(crate) fn probe(&self, name: &str) -> (Option<String>, Option<&'a str>) {
        let probe = &self.0[name];
        let words = probe["exec"]["command"].as_array();
        let words = words.map(|words| words.iter().map(quote).collect::<Vec<_>>().join(" "));
        (words, probe["httpGet"]["path"].as_str())
    }
}

/// Returns a word of the shell.
fn quote(word: &Value) -> String {
    format!("'{}'", word.as_str().unwrap())
}

/// Returns all objects of a manifest.
pub(crate) fn documents(file: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dev/packaging/kubernetes");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    documents
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

fn merge(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (name, value) in patch {
                merge(object.entry(name).or_insert(Value::Null), value);
            }
        }
        (Value::Array(list), Value::Array(patch)) if patch.iter().all(Value::is_object) => {
            for change in patch {
                let is_same = |item: &&mut Value| item["name"] == change["name"];
                match list.iter_mut().find(is_same) {
                    Some(item) => merge(item, change),
                    None => list.push(change.clone()),
                }
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}
