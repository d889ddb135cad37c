package mapping

import (
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// topicList are the topics that rows of a table may name.
type topicList struct {
	names      map[string]struct{}
	beginnings []string
}

// hiddenTopic is the prefix of topics that belong to Kafka and to tools around it. A row may name such a
// topic only if the configuration lists its full name.
const hiddenTopic = "__"

func newTopicList(t *outbox.Table) *topicList {
	l := &topicList{names: map[string]struct{}{}}
	for _, pattern := range t.Mapping.TopicAllow {
		if beginning, ok := strings.CutSuffix(pattern, "*"); ok {
			l.beginnings = append(l.beginnings, beginning)
		} else {
			l.names[pattern] = struct{}{}
		}
	}
	if len(t.Mapping.TopicAllow) == 0 {
		l.beginnings = []string{""}
	}
	return l
}

func (l *topicList) has(topic string) bool {
	if _, named := l.names[topic]; named || strings.HasPrefix(topic, hiddenTopic) {
		return named
	}
	return slices.ContainsFunc(l.beginnings, func(b string) bool { return strings.HasPrefix(topic, b) })
}
