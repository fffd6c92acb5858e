//! Configuration that all subagents of one definition share: model routes, tools and instructions.

use std::sync::Arc;
use std::time::Duration;

use crate::agent_invocation::{ContextFitter, ModelRoutes};
use crate::context::ContextMeter;
use crate::conversation::Message;
use crate::delegation::{DELEGATE, DelegationHandle, Subagent};
use crate::event::Event;
use crate::governor::Permit;
use crate::limits::Limits;
use crate::ports::{ProviderInfo, SideEffect, Thinking, ToolSpec};
use crate::root_session::SessionBase;
use crate::root_session::supervised::clients::Clients;
use crate::tool_call::Services;

pub(super) struct SubagentConfig {
    pub(super) name: String,
    pub(super) info: ProviderInfo,
    pub(super) model_routes: ModelRoutes,
    pub(super) system: Arc<Message>,
    pub(super) duration_max: Option<Duration>,
    /// Reasoning effort; `None`: the provider's default.
    pub(super) thinking: Option<Thinking>,
    /// Sampling temperature; `None`: the provider's default.
    pub(super) temperature: Option<f64>,
    /// Names of the subagents that it may call.
    calls: Vec<String>,
    services: Arc<Services>,
    fitter: ContextFitter,
    /// Descriptions of its tools, by the depth of the subagent, which decides if it can call other
    /// agents. The last entry is for all deeper levels, too.
    specs: Vec<Arc<[ToolSpec]>>,
}

impl SubagentConfig {
    /// Services for its calls, with the limit `turns_max` of model replies if it is lower than that
    /// of the definition.
    pub(super) fn services(&self, turns_max: Option<u32>) -> Arc<Services> {
        let usual = self.services.limits.turns_max;
        match turns_max.filter(|max| *max < usual) {
            None => Arc::clone(&self.services),
            Some(turns_max) => {
                let limits = Limits { turns_max, ..(*self.services.limits).clone() };
                Arc::new(Services { limits: Arc::new(limits), ..(*self.services).clone() })
            }
        }
    }

    /// Context budget, an empty token estimate, and the summary model.
    pub(super) fn fitter(&self) -> ContextFitter {
        ContextFitter { meter: ContextMeter::default(), ..self.fitter.clone() }
    }

    pub(super) fn specs(&self, permit: &Permit) -> Arc<[ToolSpec]> {
        let nth = usize::try_from(permit.depth).unwrap_or(usize::MAX).min(self.specs.len() - 1);
        Arc::clone(&self.specs[nth])
    }

    /// Descriptions of its tools without those for delegation.
    pub(super) fn own_specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs[self.specs.len() - 1])
    }

    pub(super) fn started(&self, specs: &[ToolSpec]) -> Event {
        Event::InvocationStarted {
            provider: self.info.profile.clone(),
            model: self.info.model.clone(),
            tools: specs.iter().map(|spec| spec.name.clone()).collect(),
        }
    }

    /// Event that records the tools of a subagent with the descriptions `specs`. `isolated`: true if
    /// it works in an isolated workspace.
    pub(super) fn tool_policy(&self, specs: &[ToolSpec], isolated: bool) -> Event {
        let has_effect = |spec: &&ToolSpec| spec.side_effect != SideEffect::None;
        let names = |specs: &mut dyn Iterator<Item = &ToolSpec>| {
            specs.map(|spec| spec.name.clone()).collect()
        };
        let delegates = specs.iter().any(|spec| spec.name == DELEGATE);
        Event::ToolPolicyApplied {
            tools: names(&mut specs.iter()),
            effects: names(&mut specs.iter().filter(has_effect)),
            may_call: if delegates { self.calls.clone() } else { Vec::new() },
            isolated,
        }
    }
}

impl SessionBase {
    pub(super) fn kinds(
        &self,
        delegation_handle: &Arc<DelegationHandle>,
        clients: &Clients,
    ) -> Vec<SubagentConfig> {
        let inherited = clients.model_routes(&self.ports);
        let kind = |subagent: &Subagent| {
            let contact = subagent.provider.as_ref().and_then(|provider| clients.contact(provider));
            let turns_max = delegation_handle.delegation.turns_max.max(1);
            let limits = Limits {
                turns_max: subagent.turns_max.map_or(turns_max, |max| max.min(turns_max)),
                // The time limit is part of the permit.
                duration_max: None,
                ..self.settings.limits.clone()
            };
            SubagentConfig {
                name: subagent.name.clone(),
                info: delegation_handle.info_of(subagent),
                model_routes: match contact {
                    Some(contact) => ModelRoutes::new(vec![contact]),
                    None => inherited.clone(),
                },
                system: Arc::new(Message::System { content: subagent.system_prompt.clone() }),
                duration_max: subagent.duration_max,
                thinking: subagent.thinking,
                temperature: subagent.temperature,
                calls: subagent.calls.clone(),
                services: Arc::new(Services {
                    limits: Arc::new(limits),
                    ..(*self.services).clone()
                }),
                fitter: self.child_fitter(clients),
                specs: self.specs_by_depth(delegation_handle, subagent),
            }
        };
        delegation_handle.delegation.subagents.iter().map(kind).collect()
    }

    fn specs_by_depth(
        &self,
        delegation_handle: &DelegationHandle,
        subagent: &Subagent,
    ) -> Vec<Arc<[ToolSpec]>> {
        let tools = &self.services.tools;
        let own = || subagent.tools.iter().filter_map(|name| tools.get(name));
        let at = |depth: u32| {
            let own = own().map(|tool| tool.spec().clone());
            own.chain(delegation_handle.specs(tools, &subagent.calls, depth)).collect()
        };
        (0..=delegation_handle.delegation.limits.depth_max).map(at).collect()
    }
}
