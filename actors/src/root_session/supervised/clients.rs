//! Provider clients of a session, one per account.

use std::sync::Arc;

use ractor::ActorId;
use tokio::sync::watch;

use crate::agent_invocation::{ModelRoute, ModelRoutes};
use crate::cost::PriceLookup;
use crate::ledger::BudgetHandle;
use crate::mailbox::{HandlerResult, StartResult, spawn_child};
use crate::ports::{Abilities, Fallback, Ports, Provider};
use crate::provider_client::{self, ProviderClient};
use crate::restarts::RestartBudget;
use crate::root_session::supervised::Supervised;
use crate::root_session::{SessionBase, State};

/// The provider clients, one per account: first those of the main model and its fallbacks in order,
/// then those of other models.
pub(crate) struct Clients {
    all: Vec<SupervisedClient>,
    /// Number of clients, from the first, for the main model and its fallbacks.
    main: usize,
}

struct SupervisedClient {
    supervised: Supervised<provider_client::Msg>,
    account: String,
    providers: Vec<Arc<dyn Provider>>,
    prices: Vec<Option<PriceLookup>>,
}

impl Clients {
    /// Groups all providers by account. `price`: pricing of the main model; `own`: providers of
    /// subagents, summaries and titles with their pricing.
    pub(crate) fn new<'a>(
        ports: &'a Ports,
        price: Option<&PriceLookup>,
        own: impl Iterator<Item = (&'a Arc<dyn Provider>, Option<PriceLookup>)>,
        budget: impl Fn() -> RestartBudget,
    ) -> Clients {
        let mut clients: Vec<SupervisedClient> = Vec::new();
        let mut main = 0;
        let main_providers = ports.fallbacks.len() + 1;
        let others = ports.fallbacks.iter().map(|fallback| fallback.price.clone());
        let prices = std::iter::once(price.cloned()).chain(others);
        for (nth, (provider, price)) in providers(ports).zip(prices).chain(own).enumerate() {
            let account = provider.account();
            let known = clients.iter_mut().find(|client| client.account == account);
            if let Some(client) = known {
                client.providers.push(Arc::clone(provider));
                client.prices.push(price);
                continue;
            }
            let line = watch::Sender::new(None);
            let supervised = Supervised::new("ProviderClient", line, budget());
            let (providers, prices) = (vec![Arc::clone(provider)], vec![price]);
            clients.push(SupervisedClient { supervised, account, providers, prices });
            if nth < main_providers {
                main = clients.len();
            }
        }
        Clients { all: clients, main }
    }

    /// True if a client of the main model or of a fallback runs. The others serve subagents,
    /// summaries and titles only.
    fn serves_main(&self) -> bool {
        self.all[..self.main].iter().any(|client| client.supervised.is_running())
    }

    /// Routes to the main model and its fallbacks, in order.
    pub(crate) fn model_routes(&self, ports: &Ports) -> ModelRoutes {
        let mut met: Vec<usize> = vec![0; self.all.len()];
        let abilities = ports.fallbacks.iter().map(|fallback| fallback.abilities);
        let abilities = std::iter::once(Abilities::default()).chain(abilities);
        let contact = |(provider, abilities): (&Arc<dyn Provider>, Abilities)| {
            let account = provider.account();
            let nth = self.all.iter().position(|client| client.account == account)?;
            let model = met[nth];
            met[nth] += 1;
            let client = self.all[nth].supervised.line();
            Some(ModelRoute { client, model, info: provider.info(), abilities })
        };
        ModelRoutes::new(providers(ports).zip(abilities).filter_map(contact).collect())
    }

    /// Route to the model of `provider`; `None` unless `provider` is one of the objects with which
    /// the clients were created.
    pub(crate) fn contact(&self, provider: &Arc<dyn Provider>) -> Option<ModelRoute> {
        self.all.iter().find_map(|client| {
            let model = client.providers.iter().position(|own| Arc::ptr_eq(own, provider))?;
            let (client, info) = (client.supervised.line(), provider.info());
            Some(ModelRoute { client, model, info, abilities: Abilities::default() })
        })
    }

    /// Routes with the single model of the role `compact` or `title`; `None` if none is configured.
    pub(crate) fn of_role(&self, role: Option<&Fallback>) -> Option<ModelRoutes> {
        let role = role?;
        let contact = self.contact(&role.provider)?;
        Some(ModelRoutes::new(vec![ModelRoute { abilities: role.abilities, ..contact }]))
    }

    pub(crate) fn tell(&self, message: impl Fn() -> provider_client::Msg) {
        for client in &self.all {
            client.supervised.line().tell(message());
        }
    }

    pub(crate) fn crashed(&self, child: ActorId) -> Option<usize> {
        self.all.iter().position(|client| client.supervised.is(child))
    }
}

fn providers(ports: &Ports) -> impl Iterator<Item = &Arc<dyn Provider>> {
    let others = ports.fallbacks.iter().map(|fallback| &fallback.provider);
    std::iter::once(&ports.provider).chain(others)
}

impl State {
    pub(crate) async fn start_clients(&mut self) -> StartResult<()> {
        for client in &self.supervised.clients.all {
            self.base.start_client(client, self.budget.keeper.budget_handle(), false).await?;
        }
        Ok(())
    }

    pub(crate) async fn client_crashed(&mut self, nth: usize, cause: &str) -> HandlerResult {
        let Some(client) = self.supervised.clients.all.get_mut(nth) else { return Ok(()) };
        let Supervised { name, budget, .. } = &mut client.supervised;
        let name = *name;
        if self.base.spend(name, budget, cause) {
            return self.base.start_client(client, self.budget.keeper.budget_handle(), true).await;
        }
        client.supervised.give_up();
        // Clients of other accounts stay in use, such as those of fallback models.
        if !self.supervised.clients.serves_main() {
            self.park(name, cause);
        }
        Ok(())
    }
}

impl SessionBase {
    async fn start_client(
        &self,
        client: &SupervisedClient,
        budget_handle: &BudgetHandle,
        half_open: bool,
    ) -> StartResult<()> {
        let args = provider_client::Args {
            providers: client.providers.clone(),
            prices: client.prices.clone(),
            budget_handle: budget_handle.clone(),
            clock: Arc::clone(&self.ports.clock),
            transcript: self.transcript.clone(),
            limits: Arc::clone(&self.services.limits),
            fail: self.settings.fail.clone(),
            half_open,
        };
        let actor = spawn_child(ProviderClient, args, &self.me).await?;
        client.supervised.put(actor);
        Ok(())
    }
}
