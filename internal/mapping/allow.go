package mapping

import (
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// topicList is the topics that rows of a table may name.
type topicList struct {
	names      map[string]struct{}
	beginnings []string
	hidden     bool // names that begin with two underscores are no different
}

// hiddenTopic begins the names of topics that belong to Kafka and to tools around
// it. A row may name one only where the configuration does.
const hiddenTopic = "__"

func newTopicList(t *outbox.Table) *topicList {
	l := &topicList{names: map[string]struct{}{}}
	l.hidden = strings.HasPrefix(t.Mapping.Topic.Literals[0], hiddenTopic)
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
	hidden := !l.hidden && strings.HasPrefix(topic, hiddenTopic)
	for _, b := range l.beginnings {
		if strings.HasPrefix(topic, b) && (!hidden || strings.HasPrefix(b, hiddenTopic)) {
			return true
		}
	}
	_, named := l.names[topic]
	return named
}
