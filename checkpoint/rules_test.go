package checkpoint

import (
	"reflect"
	"testing"
)

// redundant rules are those that no seed needs, and why they stand.
var redundant = map[string]string{
	"remembersParked": "every hand-back waits for all discarded transactions, whatever their scope",
	"handBackQuiet":   "the park's removal waits for what was in flight at the statement, too",
	"watchExcludes":   "a row in flight has a hold in the ledger or a park; both are looked at before it counts as missed",
	"voidDiscarded":   "a healed world's xids soon pass those that a failover lost: TestDiscardedXIDsAreVoidAfterAReconnect",
	"askSoon":         "only time is lost: TestWritersRowIsOnTime",
	"claimOutage":     "locks are held through the outage, which no invariant forbids: TestNothingStaysLockedInAnOutage",
	"lockGuard":       "needs a failover between two parks: TestParksAreWrittenWhereTheLockIs",
}

// often are the faults without which a rule has nothing to protect from.
var often = map[string][]eventKind{
	"rewriteUnknown":       {evParksUnknown, evKill},
	"keepFromStatement":    {evSlotLost},
	"repeatDiscarded":      {evInvisible},
	"repeatInProgress":     {evPrepare, evSlotLost, evKill},
	"remembersParked":      {evInvisible, evSlotLost},
	"handBackQuiet":        {evSlotLost},
	"checkKept":            {evSlotLost},
	"voidHandBack":         {evDrop, evSlotLost},
	"voidDiscarded":        {evFailover, evParkStream},
	"invisibleWaits":       {evInvisible, evKill},
	"skipInFlight":         {evDrop},
	"inFlightInLedger":     {evDrop, evMarkLost},
	"watchExcludes":        {evRequeue},
	"watchAbandoned":       {evDrop, evRequeue},
	"watchNotParkedSecond": {evRequeue},
	"startZero":            {evFailover},
	"fencing":              {evFreeze, evDrop, evDelete},
	"epochGuard":           {evFreeze, evDrop},
	"lockGuard":            {evFailover, evParksUnknown},
	"insertAfterSnapshot":  {evSlotLost},
	"snapshotAfterXID":     {evInvisible, evSlotLost},
	"failedReadBack":       {evKill},
	"epochContinuity":      {evFreeze, evDrop, evParksUnknown},
	"parksReadBack":        {evKill},
	"drainAwaits":          {evDrain},
	"voidAnswers":          {evDrop},
	"blockStays":           {evTopicDown, evRequeue},
	"blockAsks":            {evRequeue, evDelete},
	"releasesOne":          {evTopicDown},
	"retainsFlying":        {evRetain},
	"drainsTopic":          {evAddPartition},
	"nextBounded":          {evSkew, evKill},
	"dueByCommit":          {evSkew},
	"watchPauses":          {evSkew},
	"stands":               {evRelay},
	"headStart":            {evRelay},
	"headStartAnew":        {evRelay, evInvisible},
	"horizonAges":          {evRelay, evSlotLost},
	"standLeaves":          {evRelayDone, evSlotLost},
	"standInFlight":        {evRelayDone, evSlotLost},
	"unclaims":             {evRelayDone, evClusterDown},
	"knownParks":           {evTopicDown},
	"rowsAlone":            {evUnmarked},
	"sameRow":              {evReissue, evDrop, evRequeue},
	"findsSameRow":         {evReissue},
}

// about are rules that need a world of their own.
var about = map[string]func(*plan){
	"blockAsks":     (*plan).blocksKeys,
	"headStartAnew": (*plan).behindStandby,
	"blockStays":    (*plan).blocksKeys,
	"repeatInProgress": func(p *plan) {
		p.keys, p.procs = 1, 1
		p.weights[evPrepare], p.weights[evCommitPrepared] = 20, 1
	},
	"knownParks": (*plan).manyTopics,
}

// Every rule of the contract is needed: with it off, and all others in force,
// some seed breaks an invariant, which holds there with the rule.
func TestRulesMatter(t *testing.T) {
	if testing.Short() || ruleSeeds == 0 {
		t.Skip("thousands of seeds")
	}
	for _, off := range allSwitches() {
		t.Run(off.name, func(t *testing.T) {
			why, known := redundant[off.name]
			seeds := ruleSeeds
			if known {
				seeds /= 40
			}
			world := switches{often: often[off.name], about: about[off.name]}
			off.switches.often, off.switches.about = world.often, world.about
			switch seed, v := firstBroken(*simFrom, seeds, off.switches); {
			case v != nil:
				t.Logf("seed %d: %v", seed, v)
				if v, _ = simulate(seed, world, -1, nil); v != nil {
					t.Errorf("it breaks with the rule, too, and says nothing about it: %v", v)
				}
			case known:
				t.Logf("nothing breaks without it: %s", why)
			default:
				t.Errorf("%d seeds without this rule broke nothing", seeds)
			}
		})
	}
}

type offSwitch struct {
	name     string
	switches switches
}

// allSwitches gives each rule of rules and worldRules, switched off alone.
func allSwitches() []offSwitch {
	var list []offSwitch
	core, world := reflect.TypeFor[rules](), reflect.TypeFor[worldRules]()
	for i := range core.NumField() {
		list = append(list, offSwitch{core.Field(i).Name, switches{core: coreRule(core.Field(i).Name)}})
	}
	for i := range world.NumField() {
		list = append(list, offSwitch{world.Field(i).Name, switches{world: worldRule(world.Field(i).Name)}})
	}
	return list
}

// coreRule switches one rule of the Core off.
func coreRule(name string) (off rules) {
	switchOn(&off, name)
	return off
}

// worldRule switches one rule of the driver or the world off.
func worldRule(name string) (off worldRules) {
	switchOn(&off, name)
	return off
}

// switchOn sets a field, which package reflect alone does only where it is
// exported.
func switchOn(rules any, name string) {
	field := reflect.ValueOf(rules).Elem().FieldByName(name)
	*(*bool)(field.Addr().UnsafePointer()) = true
}
